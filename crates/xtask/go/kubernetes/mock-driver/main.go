// Serves Kubernetes' own mock CSI driver on a unix socket, so that the tier has a driver that
// nobody here wrote. The driver itself comes from the kubernetes module; this file starts it.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	endpoint := flag.String("endpoint", "", "the unix socket to listen on")
	name := flag.String("name", service.Name, "the driver's name")
	flag.Parse()

	mock := service.New(service.Config{DriverName: *name, PermissiveTargetPath: true, IO: service.OSDirIO{}})
	servers := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: mock, Identity: mock, Node: mock})
	listener, err := net.Listen("unix", *endpoint)
	if err != nil {
		log.Fatal(err)
	}
	if err := servers.Start(listener, logged); err != nil {
		log.Fatal(err)
	}
	log.Printf("serving %s at %s", *name, *endpoint)

	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	servers.Stop()
}

// Names the call and its outcome only: requests may carry secrets.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	log.Printf("%s: %v", info.FullMethod, err)
	return answer, err
}
