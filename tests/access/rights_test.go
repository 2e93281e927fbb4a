package access

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/internal/nodelease"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/tests/fleet"
)

// leases are the names of the services' leases by account, as rbac.yaml has them.
var leases = func() map[string]string {
	text, err := os.ReadFile(manifests + "rbac.yaml")
	if err != nil {
		panic(err)
	}
	out := map[string]string{}
	role := regexp.MustCompile(`kind: Role\nmetadata: {name: (?:nvsentinel-)?(\S+), .*\nrules:\n(?:  .*\n)*?.*resources: \[leases\], resourceNames: \[(\S+)\]`)
	for _, m := range role.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = m[2]
	}
	if n := strings.Count(string(text), "resources: [leases], resourceNames: ["); n == 0 || n != len(out) {
		panic(fmt.Sprintf("%d of the %d Leases of rbac.yaml are understood", len(out), n))
	}
	return out
}()

// TestLeasesOfOthers: no account takes a lease but its own: not that of another
// service, not that of a controller of Kubernetes, not a node's heartbeat.
func TestLeasesOfOthers(t *testing.T) {
	w := newWorld(t)
	lease := func(ns, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("somebody")}}
	}
	foreign := []*coordinationv1.Lease{lease("kube-system", "kube-scheduler-test"), lease("kube-node-lease", "some-node"), lease(namespace, "another-service")}
	for i, l := range foreign {
		_, err := w.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Namespace}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		if foreign[i], err = w.admin.CoordinationV1().Leases(l.Namespace).Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for account, name := range leases {
		caller := w.account(t, account)
		own, err := caller.CoordinationV1().Leases(namespace).Create(t.Context(), lease(namespace, name), metav1.CreateOptions{})
		if err == nil {
			_, err = caller.CoordinationV1().Leases(namespace).Update(t.Context(), own, metav1.UpdateOptions{})
		}
		if err == nil {
			_, err = caller.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
		}
		if err != nil {
			t.Errorf("%s and its own lease: %v", account, err)
		}
		for _, l := range foreign {
			stolen := l.DeepCopy()
			stolen.Spec.HolderIdentity = &account
			if _, err := caller.CoordinationV1().Leases(l.Namespace).Update(t.Context(), stolen, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("%s takes lease %s/%s: %v, want it forbidden", account, l.Namespace, l.Name, err)
			}
		}
	}
}

// TestServicesCreateTheirOwnOnly: otherwise a service could take the lease of another service
// before that one starts, or create the object of the emergency stop.
func TestServicesCreateTheirOwnOnly(t *testing.T) {
	w := newWorld(t)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(account, name string) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := w.account(t, account).CoordinationV1().Leases(namespace).Create(t.Context(), lease, dry)
		return err
	}
	testkit.Until(t, 2*time.Minute, func() bool { return refused(create("janitor", "not-yet-in-force")) })
	for account := range leases {
		foreign := []string{"another-service", leases[account] + "-2"}
		for _, name := range leases {
			if name != leases[account] {
				foreign = append(foreign, name)
			}
		}
		for _, name := range foreign {
			if err := create(account, name); !refused(err) || !strings.Contains(err.Error(), "its own Lease") {
				t.Errorf("%s creates lease %s: %v, want it refused", account, name, err)
			}
		}
		if err := create(account, leases[account]); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s creates its own lease: %v", account, err)
		}
	}
	monitor := w.account(t, "kubernetes-object-monitor").CoreV1().ConfigMaps(namespace)
	for name, own := range map[string]bool{"kubernetes-object-monitor-state": true, "nvsentinel-pause": false, "policies": false} {
		_, err := monitor.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, dry)
		if refused(err) == own || own && err != nil {
			t.Errorf("kubernetes-object-monitor creates ConfigMap %s: %v", name, err)
		}
	}
}

// TestLeasesOfNodes: who begins repairs takes the lease of a node and renews it,
// where all remediators of a cluster have them; nobody else does.
func TestLeasesOfNodes(t *testing.T) {
	w := newWorld(t)
	for _, account := range []string{"fault-remediation", "node-health-check", "repair-chain"} {
		node := w.plain(t, "leased-by-"+account)
		claims := nodelease.Claims{Client: w.account(t, account), Namespace: nodelease.DefaultNamespace, Clock: clock.RealClock{}}
		for _, verb := range []string{"takes", "renews"} {
			if err := claims.Take(t.Context(), node, account, time.Minute, nil); err != nil {
				t.Errorf("%s %s the lease of a node: %v", account, verb, err)
			}
		}
		claims.Client = w.account(t, "janitor")
		if err := claims.Take(t.Context(), node, "janitor", time.Minute, nil); !apierrors.IsForbidden(err) {
			t.Errorf("janitor takes the lease of a node: %v, want it forbidden", err)
		}
	}
}

// TestLeasesOfKubelets: who has to know whether a kubelet is alive reads the Lease of one
// node, lists none and writes none.
func TestLeasesOfKubelets(t *testing.T) {
	w := newWorld(t)
	kubelet := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "watched-node"}}
	if _, err := w.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), kubelet, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for account, reads := range map[string]bool{"fault-remediation": true, "csp-health-monitor": true, "janitor": false} {
		leases := w.account(t, account).CoordinationV1().Leases(corev1.NamespaceNodeLease)
		if _, err := leases.Get(t.Context(), kubelet.Name, metav1.GetOptions{}); reads && err != nil || !reads && !apierrors.IsForbidden(err) {
			t.Errorf("%s reads the Lease of a kubelet: %v", account, err)
		}
		if _, err := leases.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists the Leases of kubelets: %v, want it forbidden", account, err)
		}
		if err := leases.Delete(t.Context(), kubelet.Name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s deletes the Lease of a kubelet: %v, want it forbidden", account, err)
		}
	}
}

// TestOnlyNodeHealthCheckCreatesHealthEventRemediations: each is a word about a node that the
// connector believes, and a right to all objects is not enough for it.
func TestOnlyNodeHealthCheckCreatesHealthEventRemediations(t *testing.T) {
	w := newWorld(t)
	create := func(account string) error {
		config := w.cluster.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + account, Groups: []string{"system:masters"}}
		return client(t, config).Discovery().RESTClient().Post().
			AbsPath("/apis/nvsentinel.dgxc.nvidia.com/v1alpha1/healtheventremediations").Param("dryRun", metav1.DryRunAll).
			Body([]byte(`{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"HealthEventRemediation","metadata":{"name":"some-node"}}`)).
			Do(t.Context()).Error()
	}
	for account := range leases {
		if account == "node-health-check" {
			continue
		}
		testkit.Until(t, 2*time.Minute, func() bool { // a policy takes effect shortly after it is applied
			err := create(account)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
		})
	}
	if err := create("node-health-check"); err != nil {
		t.Errorf("node-health-check makes a HealthEventRemediation: %v", err)
	}
}

// TestAHealthEventRemediationKeepsItsNode: nobody can change its node or its owner. The fault is
// on that node, and its end must be too.
func TestAHealthEventRemediationKeepsItsNode(t *testing.T) {
	w := newWorld(t)
	config := w.cluster.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":node-health-check", Groups: []string{"system:masters"}}
	api := client(t, config).Discovery().RESTClient()
	const path = "/apis/nvsentinel.dgxc.nvidia.com/v1alpha1/healtheventremediations"
	const owner = `{"apiVersion":"remediation.medik8s.io/v1alpha1","kind":"NodeHealthCheck","name":"a","uid":"6f0cdd4e-0000-4000-8000-000000000001"}`
	err := api.Post().AbsPath(path).Body([]byte(`{"apiVersion":"nvsentinel.dgxc.nvidia.com/v1alpha1","kind":"HealthEventRemediation","metadata":{"name":"kept",
		"annotations":{"remediation.medik8s.io/node-name":"a"},"ownerReferences":[` + owner + `]}}`)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	patch := func(body string) error {
		return api.Patch(types.MergePatchType).AbsPath(path, "kept").Param("dryRun", metav1.DryRunAll).Body([]byte(body)).Do(t.Context()).Error()
	}
	for _, forged := range []string{
		`{"metadata":{"annotations":{"remediation.medik8s.io/node-name":"b"}}}`, `{"metadata":{"annotations":{"remediation.medik8s.io/node-name":null}}}`,
		`{"metadata":{"ownerReferences":[]}}`, `{"metadata":{"ownerReferences":[` + strings.Replace(owner, `"a"`, `"b"`, 1) + `]}}`,
	} {
		testkit.Until(t, 2*time.Minute, func() bool { // a policy takes effect shortly after it is applied
			err := patch(forged)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "its recovery ends what its fault began")
		})
	}
	for _, allowed := range []string{`{"metadata":{"annotations":{"remediation.medik8s.io/nhc-timed-out":"now"}}}`, `{"metadata":{"finalizers":["a/b"]}}`} {
		if err := patch(allowed); err != nil {
			t.Errorf("%s: %v", allowed, err)
		}
	}
}

// TestPluginWritesItsMemoryOnly: not the configuration of the services beside it.
func TestPluginWritesItsMemoryOnly(t *testing.T) {
	w := newWorld(t)
	text, err := os.ReadFile(manifests + "deploy/csp-plugin-aws.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	maps := w.admin.CoreV1().ConfigMaps(namespace)
	policies, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes-health-monitor-config"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policies.Data = map[string]string{"policies.toml": "forged"}
	plugin := w.account(t, "csp-plugin-aws").CoreV1().ConfigMaps(namespace)
	testkit.Until(t, 2*time.Minute, func() bool {
		_, err := plugin.Update(t.Context(), policies, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return refused(err) && strings.Contains(err.Error(), "csp-plugin-aws-...")
	})
	memory := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "csp-plugin-aws-0123"}}
	if memory, err = plugin.Create(t.Context(), memory, metav1.CreateOptions{}); err == nil {
		_, err = plugin.Update(t.Context(), memory, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Errorf("its memory: %v", err)
	}
	for _, name := range []string{"nvsentinel-pause", "csp-plugin-gcp-0123", "policies"} {
		if _, err := plugin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); !refused(err) {
			t.Errorf("it creates ConfigMap %s: %v, want it refused", name, err)
		}
	}
}

// TestRightsAreComparedWithTheAudit: what an account was refused, by a missing right
// or by a policy, and what it was given and did not use, is found.
func TestRightsAreComparedWithTheAudit(t *testing.T) {
	w := newWorld(t)
	node := w.plain(t, "node")
	remediation := w.account(t, "fault-remediation")
	inForce(t, remediation, node.Name) // which is refused by the policy
	if _, err := remediation.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := remediation.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("listing secrets: %v, want it forbidden", err)
	}
	var rights fleet.Rights
	if err := rights.Add(t.Context(), w.cluster); err != nil {
		t.Fatal(err)
	}
	refused := strings.Join(rights.Refused(), "\n")
	for _, want := range []string{"fault-remediation: list secrets", "fault-remediation: patch nodes", "ValidatingAdmissionPolicy"} {
		if !strings.Contains(refused, want) {
			t.Errorf("the audit shows no %q:\n%s", want, refused)
		}
	}
	unused := rights.Unused("fault-remediation")
	if slices.Contains(unused, "fault-remediation: list pods") || !slices.Contains(unused, "fault-remediation: create terminatenodes.janitor.dgxc.nvidia.com") {
		t.Errorf("unused rights: %v; list pods was used, create terminatenodes was not", unused)
	}
}
