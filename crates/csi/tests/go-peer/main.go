// Command go-peer is the other side of the wire in Go: a CSI client that calls
// a server, a CSI server to be called, and the protocol as Go's own bindings
// know it. The Rust test beside it builds and runs it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: go-peer describe | serve SOCKET | call SOCKET | authority SOCKET NAME | dial SOCKET")
	}
	switch args := os.Args[2:]; os.Args[1] {
	case "describe":
		describe()
	case "serve":
		serve(args[0])
	case "call":
		call(args[0])
	case "authority":
		authority("unix://"+args[0], grpc.WithAuthority(args[1]))
	case "dial":
		authority("passthrough:///"+args[0], grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	default:
		fail("unknown command " + os.Args[1])
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}

// describe prints every message, enumeration and call, one fact per line.
func describe() {
	var lines []string
	var messages func(protoreflect.MessageDescriptors)
	var enums func(protoreflect.EnumDescriptors)
	enums = func(found protoreflect.EnumDescriptors) {
		for i := range found.Len() {
			values := found.Get(i).Values()
			for j := range values.Len() {
				value := values.Get(j)
				lines = append(lines, fmt.Sprintf("enum %s %s = %d",
					found.Get(i).FullName(), value.Name(), value.Number()))
			}
		}
	}
	messages = func(found protoreflect.MessageDescriptors) {
		for i := range found.Len() {
			message := found.Get(i)
			lines = append(lines, "message "+string(message.FullName()))
			for j := range message.Fields().Len() {
				lines = append(lines, fieldLine(message.Fields().Get(j)))
			}
			messages(message.Messages())
			enums(message.Enums())
		}
	}
	file := csi.File_csi_proto
	messages(file.Messages())
	enums(file.Enums())
	for i := range file.Services().Len() {
		service := file.Services().Get(i)
		for j := range service.Methods().Len() {
			method := service.Methods().Get(j)
			stream := ""
			if method.IsStreamingServer() {
				stream = "stream "
			}
			lines = append(lines, fmt.Sprintf("call %s.%s %s -> %s%s", service.FullName(),
				method.Name(), method.Input().FullName(), stream, method.Output().FullName()))
		}
	}
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

func fieldLine(field protoreflect.FieldDescriptor) string {
	kind := field.Kind().String()
	if field.Kind() == protoreflect.MessageKind {
		kind = string(field.Message().FullName())
	} else if field.Kind() == protoreflect.EnumKind {
		kind = string(field.Enum().FullName())
	}
	oneof := ""
	if field.ContainingOneof() != nil {
		oneof = " in " + string(field.ContainingOneof().Name())
	}
	secret := ""
	if isSecret(field) {
		secret = " secret"
	}
	return fmt.Sprintf("field %s = %d %s %s%s%s", field.FullName(), field.Number(),
		field.Cardinality(), kind, oneof, secret)
}

func isSecret(field protoreflect.FieldDescriptor) bool {
	found := false
	field.Options().ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.FullName() == csi.E_CsiSecret.TypeDescriptor().FullName() {
			found = v.Bool()
		}
		return true
	})
	return found
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	csi.UnimplementedSnapshotMetadataServer
}

// serve is a driver until it is killed; it says so once it listens.
func serve(socket string) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fail(err.Error())
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, &driver{})
	csi.RegisterControllerServer(server, &driver{})
	csi.RegisterNodeServer(server, &driver{})
	csi.RegisterSnapshotMetadataServer(server, &driver{})
	fmt.Println("listening")
	if err := server.Serve(listener); err != nil {
		fail(err.Error())
	}
}

func (*driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "go.orlop.io", VendorVersion: "1"}, nil
}

func (*driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

func (*driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (*driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{
		{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}}},
	}}, nil
}

// CreateVolume answers with what it was asked, or fails as the name tells.
func (*driver) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	switch request.GetName() {
	case "full":
		return nil, status.Error(codes.ResourceExhausted, "the pool is full: "+request.GetSecrets()["password"])
	case "bare":
		return nil, fmt.Errorf("an error without a code")
	case "long":
		return nil, status.Error(codes.Internal, strings.Repeat("é\n", 10000))
	case "slow":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case "dies":
		os.Exit(3)
	}
	deadline, _ := ctx.Deadline()
	volume := &csi.Volume{
		VolumeId:      request.GetName(),
		CapacityBytes: request.GetCapacityRange().GetRequiredBytes(),
		VolumeContext: map[string]string{
			"fs":      request.GetVolumeCapabilities()[0].GetMount().GetFsType(),
			"mode":    request.GetVolumeCapabilities()[0].GetAccessMode().GetMode().String(),
			"timed":   fmt.Sprint(time.Until(deadline) > 5*time.Second),
			"mutable": request.GetMutableParameters()["iops"],
		},
		ContentSource:      request.GetVolumeContentSource(),
		AccessibleTopology: request.GetAccessibilityRequirements().GetPreferred(),
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

// ListVolumes answers with more than tonic takes by default.
func (*driver) ListVolumes(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	reply := &csi.ListVolumesResponse{}
	for i := range 50000 {
		reply.Entries = append(reply.Entries, &csi.ListVolumesResponse_Entry{
			Volume: &csi.Volume{VolumeId: fmt.Sprintf("%0128d", i)}})
	}
	return reply, nil
}

func (*driver) GetMetadataAllocated(request *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	for i := range int64(3) {
		if err := stream.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType:   csi.BlockMetadataType_FIXED_LENGTH,
			VolumeCapacityBytes: 3 << 20,
			BlockMetadata:       []*csi.BlockMetadata{{ByteOffset: i << 20, SizeBytes: 1 << 20}},
		}); err != nil {
			return err
		}
	}
	if request.GetSnapshotId() == "half" {
		return status.Error(codes.Unavailable, "the backend went away")
	}
	return nil
}

// call makes calls as a sidecar would and prints what came back.
func call(socket string) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fail(err.Error())
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	info, err := csi.NewIdentityClient(connection).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	say("info %s %s", err, info.GetName(), info.GetVendorVersion())
	probe, err := csi.NewIdentityClient(connection).Probe(ctx, &csi.ProbeRequest{})
	say("ready %v", err, probe.GetReady().GetValue())

	controller := csi.NewControllerClient(connection)
	request := &csi.CreateVolumeRequest{
		Name:          "pvc-1",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30, LimitBytes: 2 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: "ext4", MountFlags: []string{"noatime"}}},
			AccessMode: &csi.VolumeCapability_AccessMode{
				Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		}},
		Parameters:        map[string]string{"tier": "gold"},
		Secrets:           map[string]string{"password": "hunter2"},
		MutableParameters: map[string]string{"iops": "100"},
		AccessibilityRequirements: &csi.TopologyRequirement{
			Preferred: []*csi.Topology{{Segments: map[string]string{"node": "n1"}}}},
	}
	created, err := controller.CreateVolume(ctx, request)
	volume := created.GetVolume()
	say("volume %s %d %v %s", err, volume.GetVolumeId(), volume.GetCapacityBytes(),
		volume.GetVolumeContext()["seen"], volume.GetAccessibleTopology()[0].GetSegments()["node"])

	_, err = controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "in-use"})
	say("delete", err)
	_, err = controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "long"})
	fmt.Printf("long %s %d\n", status.Code(err), len(status.Convert(err).Message()))
	_, err = controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	fmt.Printf("absent %s\n", status.Code(err))
	_, err = csi.NewNodeClient(connection).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	fmt.Printf("no service %s\n", status.Code(err))

	short, cancelShort := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancelShort()
	_, err = controller.DeleteVolume(short, &csi.DeleteVolumeRequest{VolumeId: "hangs"})
	fmt.Printf("deadline %s\n", status.Code(err))
}

func say(format string, err error, values ...any) {
	if err != nil {
		fmt.Printf("%s: %s: %s\n", strings.Fields(format)[0], status.Code(err), status.Convert(err).Message())
		return
	}
	fmt.Printf(format+"\n", values...)
}

// authority makes calls under another :authority and prints their codes. The first spells
// the authority out, the others refer to it.
func authority(target string, options ...grpc.DialOption) {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	connection, err := grpc.NewClient(target, options...)
	if err != nil {
		fail(err.Error())
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 3 {
		_, err = csi.NewIdentityClient(connection).Probe(ctx, &csi.ProbeRequest{})
		fmt.Print(status.Code(err), " ")
	}
}
