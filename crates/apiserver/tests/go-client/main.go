// Go's typed client against the embedded API server, speaking protobuf only: it accepts no
// JSON, so that a step passes by the encoding under test or not at all.
//
// Usage: go-client KUBECONFIG. Prints one line per step that holds.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// answers counts what the server answered in: the proof that nothing fell back to JSON.
type answers struct {
	next  http.RoundTripper
	other atomic.Int64
	seen  atomic.Int64
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err == nil {
		a.seen.Add(1)
		if !strings.HasPrefix(response.Header.Get("Content-Type"), protobuf) {
			a.other.Add(1)
			fmt.Fprintf(os.Stderr, "%s %s answered as %s\n", request.Method, request.URL,
				response.Header.Get("Content-Type"))
		}
	}
	return response, err
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func that(holds bool, format string, args ...any) {
	if !holds {
		panic(fmt.Sprintf(format, args...))
	}
}

func ptr[T any](value T) *T { return &value }

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	config := must(clientcmd.BuildConfigFromFlags("", os.Args[1]))
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf
	config.QPS = 1000
	config.Burst = 1000
	count := &answers{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		count.next = next
		return count
	})
	client := kubernetes.NewForConfigOrDie(config)
	steps := []struct {
		name string
		step func(context.Context, *kubernetes.Clientset)
	}{
		{"claims", claims},
		{"volumes", volumes},
		{"pods", pods},
		{"secrets", secrets},
		{"leases", leases},
		{"events", events},
		{"storage", storage},
		{"access", access},
		{"refusals", refusals},
		{"informers", shared},
		{"elections", elections},
	}
	for _, step := range steps {
		step.step(ctx, client)
		fmt.Println(step.name)
	}
	partial(ctx, metadata.NewForConfigOrDie(config))
	fmt.Println("metadata")
	that(count.other.Load() == 0, "%d of %d answers weren't protobuf", count.other.Load(), count.seen.Load())
}

func claims(ctx context.Context, client *kubernetes.Clientset) {
	api := client.CoreV1().PersistentVolumeClaims("default")
	watching := must(api.Watch(ctx, metav1.ListOptions{}))
	defer watching.Stop()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "data", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"x": ""},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr(""),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"},
		},
	}
	created := must(api.Create(ctx, claim, metav1.CreateOptions{}))
	that(created.UID != "" && !created.CreationTimestamp.IsZero(), "no identity: %v", created.ObjectMeta)
	that(*created.Spec.StorageClassName == "", "the empty class was lost")
	that(created.Spec.Resources.Requests.Storage().Cmp(resource.MustParse("1Gi")) == 0, "another size")
	that(len(created.ManagedFields) == 1 && len(created.ManagedFields[0].FieldsV1.Raw) > 0, "no managed fields")
	created.Labels["c"] = "d"
	updated := must(api.Update(ctx, created, metav1.UpdateOptions{}))
	that(updated.Labels["c"] == "d", "the update was lost")
	updated.Status.Phase = corev1.ClaimBound
	updated.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	stated := must(api.UpdateStatus(ctx, updated, metav1.UpdateOptions{}))
	that(stated.Status.Phase == corev1.ClaimBound, "the status was lost")
	for format, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"metadata":{"labels":{"merge":"1"}}}`,
		types.StrategicMergePatchType: `{"metadata":{"labels":{"strategic":"1"}}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels/json","value":"1"}]`,
	} {
		must(api.Patch(ctx, "data", format, []byte(patch), metav1.PatchOptions{}))
	}
	got := must(api.Get(ctx, "data", metav1.GetOptions{}))
	that(len(got.Labels) == 5, "labels: %v", got.Labels)
	list := must(api.List(ctx, metav1.ListOptions{LabelSelector: "json=1"}))
	that(len(list.Items) == 1 && list.ResourceVersion != "", "list: %v", list.ListMeta)
	that(equality.Semantic.DeepEqual(list.Items[0], *got), "list and get differ: %v %v", list.Items[0], got)
	check(api.Delete(ctx, "data", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(got.UID))}))
	// The protection finalizer holds it; without it, it goes.
	must(api.Patch(ctx, "data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
	var sorts []watch.EventType
	for event := range watching.ResultChan() {
		that(event.Object.(*corev1.PersistentVolumeClaim).Name == "data", "%v", event.Object)
		sorts = append(sorts, event.Type)
		if event.Type == watch.Deleted {
			break
		}
	}
	that(sorts[0] == watch.Added && sorts[1] == watch.Modified && len(sorts) >= 7, "events: %v", sorts)
}

func volumes(ctx context.Context, client *kubernetes.Clientset) {
	api := client.CoreV1().PersistentVolumes()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "d", VolumeHandle: "h", FSType: "xfs", VolumeAttributes: map[string]string{"k": "v"},
				NodeStageSecretRef: &corev1.SecretReference{Name: "s", Namespace: "n"},
			}},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "c"},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}},
			}}}},
		},
	}
	created := must(api.Create(ctx, volume, metav1.CreateOptions{}))
	that(equality.Semantic.DeepEqual(created.Spec.CSI, volume.Spec.CSI), "source: %v", created.Spec.CSI)
	that(equality.Semantic.DeepEqual(created.Spec.NodeAffinity, volume.Spec.NodeAffinity), "affinity: %v", created.Spec.NodeAffinity)
	check(api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	must(api.Patch(ctx, "v", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))
}

func pods(ctx context.Context, client *kubernetes.Clientset) {
	must(client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}))
	api := client.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr(int64(0)),
			Containers: []corev1.Container{{
				Name: "c", Image: "i", Command: []string{"a", ""},
				Env: []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k", Optional: ptr(false),
				}}}},
				Resources:      corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "w", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}},
			},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: ptr(int64(-1))}},
		},
	}
	created := must(api.Create(ctx, pod, metav1.CreateOptions{}))
	that(strings.HasPrefix(created.Name, "p-"), "name: %s", created.Name)
	container, sent := created.Spec.Containers[0], pod.Spec.Containers[0]
	that(equality.Semantic.DeepEqual(container.Env, sent.Env), "env: %v", container.Env)
	that(equality.Semantic.DeepEqual(container.ReadinessProbe.TCPSocket, sent.ReadinessProbe.TCPSocket), "probe: %v", container.ReadinessProbe)
	that(created.Spec.Volumes[0].EmptyDir != nil && created.Spec.Volumes[1].PersistentVolumeClaim.ReadOnly, "volumes: %v", created.Spec.Volumes)
	that(*created.Spec.Tolerations[0].TolerationSeconds == -1, "tolerations: %v", created.Spec.Tolerations)
	check(api.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: created.Name, UID: created.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
	}, metav1.CreateOptions{}))
	bound := must(api.Get(ctx, created.Name, metav1.GetOptions{}))
	that(bound.Spec.NodeName == "n", "not bound: %v", bound.Spec)
	check(api.Delete(ctx, created.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}))
	_, err := api.Get(ctx, created.Name, metav1.GetOptions{})
	that(apierrors.IsNotFound(err), "still there: %v", err)
}

func secrets(ctx context.Context, client *kubernetes.Clientset) {
	api := client.CoreV1().Secrets("default")
	data := map[string][]byte{"k": {0, 255, 1}, "empty": {}}
	must(api.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: data}, metav1.CreateOptions{}))
	got := must(api.Get(ctx, "s", metav1.GetOptions{}))
	that(string(got.Data["k"]) == "\x00\xff\x01", "data: %v", got.Data)
	_, there := got.Data["empty"]
	that(there, "the empty value was lost")
}

func leases(ctx context.Context, client *kubernetes.Clientset) {
	api := client.CoordinationV1().Leases("default")
	lease := must(api.Create(ctx, newLease(), metav1.CreateOptions{}))
	that(lease.Spec.RenewTime.Equal(newLease().Spec.RenewTime), "renewed: %v", lease.Spec.RenewTime)
	lease.Spec.LeaseTransitions = ptr(int32(0))
	lease = must(api.Update(ctx, lease, metav1.UpdateOptions{}))
	that(lease.Spec.LeaseTransitions != nil && *lease.Spec.LeaseTransitions == 0, "the zero was lost")
	check(api.Delete(ctx, "l", metav1.DeleteOptions{}))
}

func events(ctx context.Context, client *kubernetes.Clientset) {
	now := metav1.NewMicroTime(time.Unix(1700000000, 123456000))
	event := must(client.EventsV1().Events("default").Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, EventTime: now, ReportingController: "c.io/c",
		ReportingInstance: "i", Action: "A", Reason: "R", Type: "Normal", Note: "note",
		Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
	}, metav1.CreateOptions{}))
	that(event.EventTime.Equal(&now), "time: %v", event.EventTime)
	core := must(client.CoreV1().Events("default").Get(ctx, "e", metav1.GetOptions{}))
	that(core.Message == "note" && core.InvolvedObject.Name == "p", "event: %v", core)
	list := must(client.EventsV1().Events("").List(ctx, metav1.ListOptions{}))
	that(len(list.Items) == 1 && list.Items[0].Note == "note", "events: %v", list.Items)
}

func storage(ctx context.Context, client *kubernetes.Clientset) {
	api := client.StorageV1()
	class := must(api.StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "d", Parameters: map[string]string{"a": "b"},
		AllowVolumeExpansion: ptr(false),
	}, metav1.CreateOptions{}))
	that(class.AllowVolumeExpansion != nil && !*class.AllowVolumeExpansion, "the false was lost")
	must(api.CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr(false)},
	}, metav1.CreateOptions{}))
	node := must(api.CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: "d", NodeID: "id", TopologyKeys: []string{"k"}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr(int32(3))},
		}}},
	}, metav1.CreateOptions{}))
	that(*node.Spec.Drivers[0].Allocatable.Count == 3, "node: %v", node.Spec)
	attachment := must(api.VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr("v")}},
	}, metav1.CreateOptions{}))
	attachment.Status = storagev1.VolumeAttachmentStatus{
		Attached: true, AttachmentMetadata: map[string]string{"p": "q"},
		DetachError: &storagev1.VolumeError{Time: metav1.Unix(1700000000, 0), Message: "m"},
	}
	stated := must(api.VolumeAttachments().UpdateStatus(ctx, attachment, metav1.UpdateOptions{}))
	that(equality.Semantic.DeepEqual(stated.Status, attachment.Status), "status: %v", stated.Status)
	capacity := must(api.CSIStorageCapacities("default").Create(ctx, &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "k"}, StorageClassName: "c", Capacity: ptr(resource.MustParse("5Gi")),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}, metav1.CreateOptions{}))
	that(capacity.Capacity.String() == "5Gi", "capacity: %v", capacity)
}

func access(ctx context.Context, client *kubernetes.Clientset) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr(int64(600))}}
	issued := must(client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", request, metav1.CreateOptions{}))
	that(issued.Status.Token != "" && issued.Status.ExpirationTimestamp.After(time.Now()), "no token: %v", issued.Spec)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}
	review = must(client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{}))
	that(review.Status.User.Username == "system:serviceaccount:default:default", "user: %v", review.Status)
	may := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
	}}
	may = must(client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, may, metav1.CreateOptions{}))
	that(may.Status.Allowed, "not allowed: %v", may.Status)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}
	got := must(client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}))
	that(equality.Semantic.DeepEqual(got.Rules, role.Rules), "rules: %v", got.Rules)
}

func refusals(ctx context.Context, client *kubernetes.Clientset) {
	_, err := client.CoreV1().PersistentVolumes().Get(ctx, "none", metav1.GetOptions{})
	that(apierrors.IsNotFound(err), "%v", err)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	_, err = client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
	that(apierrors.IsInvalid(err), "%v", err)
	status := err.(apierrors.APIStatus).Status()
	that(len(status.Details.Causes) > 0 && status.Code == 422, "%v", status)
	lease := must(client.CoordinationV1().Leases("default").Create(ctx, newLease(), metav1.CreateOptions{}))
	lease.ResourceVersion = "1"
	_, err = client.CoordinationV1().Leases("default").Update(ctx, lease, metav1.UpdateOptions{})
	that(apierrors.IsConflict(err), "%v", err)
}

// shared lists by watching, as client-go does where the server can.
func shared(ctx context.Context, client *kubernetes.Clientset) {
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	classes := factory.Storage().V1().StorageClasses()
	changes := make(chan string, 100)
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { changes <- object.(*corev1.PersistentVolumeClaim).Name },
	})
	check(err)
	classes.Informer()
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		that(synced, "%v isn't in sync", kind)
	}
	_, err = classes.Lister().Get("c")
	check(err)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "seen"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	must(client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{}))
	select {
	case name := <-changes:
		that(name == "seen", "saw %s", name)
	case <-ctx.Done():
		panic("the claim wasn't seen")
	}
}

func elections(ctx context.Context, client *kubernetes.Clientset) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	led := false
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "leader"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { led = true; cancel() },
			OnStoppedLeading: func() {},
		},
	})
	that(led, "never led")
}

func partial(ctx context.Context, client metadata.Interface) {
	api := client.Resource(storagev1.SchemeGroupVersion.WithResource("storageclasses"))
	list := must(api.List(ctx, metav1.ListOptions{}))
	that(len(list.Items) == 1 && list.Items[0].Name == "c", "classes: %v", list.Items)
	one := must(api.Get(ctx, "c", metav1.GetOptions{}))
	that(one.UID != "", "class: %v", one)
}

func newLease() *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(time.Unix(1700000000, 999999000))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr("h"), LeaseDurationSeconds: ptr(int32(15)), RenewTime: &renewed,
		},
	}
}
