package janitor

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

// bare is a plugin as ADR-017 shows one: a gRPC server without TLS, without a health
// service, that implements one verb and reviews the token without an audience.
type bare struct {
	v1.UnimplementedCSPPluginServiceServer
	machines *cloud
	api      kubernetes.Interface
	janitor  string
}

func (b *bare) SendRebootSignal(ctx context.Context, req *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	if _, err := b.machines.SendRebootSignal(ctx, req); err != nil {
		return nil, err
	}
	return &v1.SendRebootSignalResponse{RequestId: fmt.Sprintf("reboot-%s-123456", req.GetNodeName())}, nil
}

func (b *bare) authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	header := md.Get("authorization")
	if len(header) == 0 {
		return nil, status.Error(codes.Unauthenticated, "missing authorization header")
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimPrefix(header[0], "Bearer ")}}
	result, err := b.api.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil || !result.Status.Authenticated {
		return nil, status.Error(codes.Unauthenticated, "invalid token")
	}
	if result.Status.User.Username != b.janitor {
		return nil, status.Error(codes.PermissionDenied, "unauthorized service account")
	}
	return handler(ctx, req)
}

// TestAPluginAsInADR017: the janitor takes its file in YAML, with a plugin for one
// controller alone, and a plugin without TLS on this host that reviews tokens of the
// API server's own audience. A token for another audience is named in the status.
func TestAPluginAsInADR017(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	install(t, cluster)
	name := cluster.Namespace(t)
	impl := &bare{machines: &cloud{cluster: cluster}, api: cluster.Client(), janitor: "system:serviceaccount:" + name + ":janitor"}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(impl.authenticate))
	v1.RegisterCSPPluginServiceServer(server, impl)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-served })

	dir := t.TempDir()
	file, secret := filepath.Join(dir, "janitor.yaml"), filepath.Join(dir, "token")
	writeFile(t, file, fmt.Appendf(nil, `
global:
  cspPluginHost: "csp-plugin-default.nvsentinel.svc.cluster.local:9090"

rebootNodeController:
  enabled: true
  # Optional: override with custom plugin
  cspPluginHost: %q
  pollInterval: 1s

terminateNodeController:
  enabled: true
  # Uses global.cspPluginHost if not specified
`, lis.Addr().String()))
	writeFile(t, secret, token(t, cluster, name, "janitor", pluginAudience))
	daemon.RunForTest(t, "janitor", defaultConfig(), build, "--kubeconfig", cluster.AdminKubeconfig(), "--config", file, "--csp-plugin-token-file", secret)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-1"}); err != nil {
		t.Fatal(err)
	}
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RebootNodeSpec{NodeName: name}}
	if err := objects.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	look := func() *metav1.Condition {
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionSignalSent)
	}
	eventually(t, "the audience in the status", func() bool {
		sent := look()
		return sent != nil && strings.Contains(sent.Message, "invalid token (the token has the audience "+pluginAudience)
	})
	writeFile(t, secret, token(t, cluster, name, "janitor"))
	eventually(t, "the reboot", func() bool { look(); return object.Status.CompletionTime != nil })
	if sent := look(); !strings.Contains(sent.Message, "reboot-"+name+"-123456") || impl.machines.signals.Load() != 1 {
		t.Errorf("%d signals took effect, and the object says %q", impl.machines.signals.Load(), sent.Message)
	}
}
