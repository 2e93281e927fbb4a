package janitor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvidia/nvsentinel/api/csp/auth"
	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/janitor/internal/reconciler"
)

const pluginAudience = "csp-plugin"

// token makes a service account and a token of it for an audience; none is the
// API server's own.
func token(t *testing.T, cluster *localcluster.Cluster, namespace, account string, audience ...string) []byte {
	t.Helper()
	accounts := cluster.Client().CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audience}}
	answer, err := accounts.CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return []byte(answer.Status.Token)
}

// guarded serves a plugin that admits the service account "janitor" alone, by
// the real API server's word.
func guarded(t *testing.T, cluster *localcluster.Cluster, namespace string, impl *cloud) string {
	t.Helper()
	dir := t.TempDir()
	rest := cluster.RESTConfig()
	ca, own := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	writeFile(t, ca, rest.CAData)
	writeFile(t, own, token(t, cluster, namespace, "plugin"))
	_, err := cluster.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "plugin"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	api, err := auth.NewAPIServer(rest.Host, ca, own)
	if err != nil {
		t.Fatal(err)
	}
	check, err := auth.New(api, auth.Policy{Audience: pluginAudience, Allowed: []string{"system:serviceaccount:" + namespace + ":janitor"}})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- plugin.Serve(ctx, lis, impl, plugin.Options{Server: check.ServerOptions()}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return lis.Addr().String()
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A janitor under the wrong service account reboots nothing and reports why. One
// whose token is meant for somebody else goes on trying; with the right token in
// the file there is one reboot.
func TestCallersAreVerified(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	install(t, cluster)
	name := cluster.Namespace(t)
	impl := &cloud{cluster: cluster}
	host := guarded(t, cluster, name, impl)
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, token(t, cluster, name, "stranger", pluginAudience))
	daemon.RunForTest(t, "janitor", defaultConfig(), build, "--kubeconfig", cluster.AdminKubeconfig(),
		"--csp-plugin-host", host, "--csp-plugin-token-file", file, "--poll-interval=1s")
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	create := func(node string) *v1alpha1.RebootNode {
		if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: node, BootID: "boot-1"}); err != nil {
			t.Fatal(err)
		}
		object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.RebootNodeSpec{NodeName: node}}
		if err := objects.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	message := func(object *v1alpha1.RebootNode, what string) bool {
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		sent := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionSignalSent)
		return sent != nil && strings.Contains(sent.Message, what)
	}

	denied := create(name + "-1")
	eventually(t, "the denial", func() bool {
		return message(denied, ":stranger\" is not an allowed identity") && denied.Status.CompletionTime != nil
	})
	if meta.IsStatusConditionTrue(denied.Status.Conditions, v1alpha1.ConditionSignalSent) || impl.signals.Load() != 0 {
		t.Errorf("denied, but conditions are %v and %d signals took effect", denied.Status.Conditions, impl.signals.Load())
	}
	eventually(t, "an Event that says so", func() bool { return hasEvent(t, cluster, denied, "PluginRefused") })

	writeFile(t, file, token(t, cluster, name, "janitor", "somebody-else"))
	retried := create(name + "-2")
	eventually(t, "the trouble with the token", func() bool { return message(retried, "the token is not valid") })
	if retried.Status.CompletionTime != nil {
		t.Errorf("a token that is not valid ended the object: %v", retried.Status.Conditions)
	}
	if !hasEvent(t, cluster, retried, "PluginUnavailable") {
		t.Error("no Event says that the plugin is not available")
	}
	writeFile(t, file, token(t, cluster, name, "janitor", pluginAudience))
	eventually(t, "the reboot", func() bool { return message(retried, "request of") && retried.Status.CompletionTime != nil })
	if got := impl.signals.Load(); got != 1 {
		t.Errorf("%d signals took effect, want 1", got)
	}
}

// hasEvent reports whether there is an Event about an object.
func hasEvent(t *testing.T, cluster *localcluster.Cluster, object *v1alpha1.RebootNode, reason string) bool {
	t.Helper()
	list, err := cluster.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(object.UID) + ",reason=" + reason,
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items) > 0
}

// The plugin is down at the moment of the fault and comes back: one reboot, and
// no object has failed.
func TestPluginDownAtTheFault(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	install(t, cluster)
	name := cluster.Namespace(t)
	if _, err := cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: name, BootID: "boot-1"}); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "plugin") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address := "unix://" + filepath.Join(dir, "s") // nobody else can take it, as they could a port
	impl := &cloud{cluster: cluster}
	running := daemon.RunForTest(t, "janitor", defaultConfig(), build, "--kubeconfig", cluster.AdminKubeconfig(), "--csp-plugin-host", address, "--poll-interval=1s")
	object := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.RebootNodeSpec{NodeName: name}}
	objects, err := reconciler.Objects(cluster.RESTConfig())
	if err == nil {
		err = objects.Create(t.Context(), object)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a readiness detail and an Event", func() bool {
		_, text := get(t, "http://"+running.Address+"/readyz")
		return strings.Contains(text, "plugin "+address+" is not available") && hasEvent(t, cluster, object, "PluginUnavailable")
	})
	if _, metrics := get(t, "http://"+running.Address+"/metrics"); !strings.Contains(metrics, `nvsentinel_janitor_plugin_available{kind="RebootNode",plugin="`+address+`"} 0`) {
		t.Error("the metric does not say that the plugin is away")
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- plugin.ListenAndServe(ctx, address, impl, plugin.Options{}) }()
	t.Cleanup(func() { stop(); <-done })
	eventually(t, "the reboot", func() bool {
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		return object.Status.CompletionTime != nil
	})
	if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionNodeReady) || impl.signals.Load() != 1 {
		t.Errorf("conditions are %v after %d signals", object.Status.Conditions, impl.signals.Load())
	}
}
