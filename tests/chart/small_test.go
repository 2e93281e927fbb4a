package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// controllers are the services that nvsentinel-controller runs.
var controllers = []string{
	"fault-quarantine", "node-drainer", "fault-remediation", "repair-chain", "janitor", "node-health-check",
	"health-events-analyzer", "event-exporter", "kubernetes-object-monitor", "labeler",
}

// TestEachControllerIsADeployment by default: with its own account, and its name for the
// program.
func TestEachControllerIsADeployment(t *testing.T) {
	pods := workloads(t, rendered(t, file("all")))
	for _, name := range controllers {
		pod := pods[name].Spec
		if len(pod.Containers) == 0 || pod.ServiceAccountName != name || pod.Containers[0].Args[0] != "--controllers="+name {
			t.Errorf("%s runs as %s with %v", name, pod.ServiceAccountName, pod.Containers)
		}
	}
	if _, there := pods["nvsentinel-controller"]; there {
		t.Error("nvsentinel-controller is there as well")
	}
}

// TestSmallIsOneDeployment: with profile small the enabled controllers are one process.
// Each keeps its flags, but for the server of the process, and speaks to the API server
// under its own account.
func TestSmallIsOneDeployment(t *testing.T) {
	objects := rendered(t, file("all"), "--set=profile=small")
	pods, files := workloads(t, objects), texts(t, objects)
	apart := workloads(t, rendered(t, file("all")))
	one := pods["nvsentinel-controller"].Spec
	var want []string
	for _, name := range controllers {
		if _, there := pods[name]; there {
			t.Errorf("%s is a workload of its own", name)
		}
		for _, arg := range apart[name].Spec.Containers[0].Args[1:] {
			if !strings.HasPrefix(arg, "--metrics-address=") {
				want = append(want, "--"+name+"."+strings.TrimPrefix(arg, "--"))
			}
		}
		file := "/etc/nvsentinel/kubeconfigs/" + name + ".yaml"
		want = append(want, "--"+name+".kubeconfig="+file)
		var kubeconfig struct {
			Users []struct {
				User struct{ As, TokenFile string }
			}
		}
		if err := yaml.Unmarshal([]byte(files["nvsentinel-controller"][name+".yaml"]), &kubeconfig); err != nil {
			t.Fatal(err)
		}
		if u := kubeconfig.Users; len(u) != 1 || u[0].User.As != "system:serviceaccount:"+release+":"+name || u[0].User.TokenFile == "" {
			t.Errorf("%s speaks as %+v", name, kubeconfig.Users)
		}
	}
	got := one.Containers[0].Args
	if got[0] != "--controllers="+strings.Join(controllers, ",") || got[1] != "--metrics-address=:2112" {
		t.Errorf("it begins with %v", got[:2])
	}
	if diff := cmp.Diff(want, got[2:]); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if env := one.Containers[0].Env; !slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" }) {
		t.Errorf("it lacks the node-drainer's variable: %v", env)
	}
	if one.ServiceAccountName != "nvsentinel-controller" {
		t.Errorf("it runs as %s", one.ServiceAccountName)
	}
}

// TestSmallRunsEnabledControllers: the program runs the enabled controllers, and is absent if
// none is enabled.
func TestSmallRunsEnabledControllers(t *testing.T) {
	set := "--set=profile=small,faultRemediation.enabled=false,kubernetesObjectMonitor.enabled=false"
	args := workloads(t, rendered(t, file("store"), set))["nvsentinel-controller"].Spec.Containers[0].Args
	if want := "--controllers=fault-quarantine,node-drainer,health-events-analyzer"; args[0] != want {
		t.Errorf("it runs %s, want %s", args[0], want)
	}
	if _, there := workloads(t, rendered(t, file("nothing"), "--set=profile=small"))["nvsentinel-controller"]; there {
		t.Error("it is there with no controller")
	}
	args = workloads(t, rendered(t, file("all"), "--set=profile=small,global.dryRun=true"))["nvsentinel-controller"].Spec.Containers[0].Args
	for _, name := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
		last := slices.Index(args, "--"+name+".dry-run=true")
		if other := slices.Index(args, "--"+name+".dry-run=false"); last < 0 || other > last {
			t.Errorf("with global.dryRun %s acts: %v", name, args)
		}
	}
}

// TestSmallKeepsRightsAndPolicies: accounts, roles and policies are those of the default
// profile. The account of the process may impersonate those of its controllers, and
// nothing else.
func TestSmallKeepsRightsAndPolicies(t *testing.T) {
	kinds := []string{
		"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "FlowSchema",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}
	of := func(objects []*unstructured.Unstructured) map[string]any {
		out := map[string]any{}
		for _, o := range objects {
			if slices.Contains(kinds, o.GetKind()) {
				out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
			}
		}
		return out
	}
	small := of(rendered(t, file("all"), "--set=profile=small"))
	role := as[rbacv1.Role](t, &unstructured.Unstructured{Object: small["Role "+release+"/nvsentinel-controller"].(map[string]any)}) //nolint:forcetypeassert // made above
	for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding"} {
		delete(small, kind+" "+release+"/nvsentinel-controller")
	}
	if diff := cmp.Diff(of(rendered(t, file("all"))), small); diff != "" {
		t.Errorf("rights and policies (-default +small):\n%s", diff)
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: controllers, Verbs: []string{"impersonate"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("the process may (-want +got):\n%s", diff)
	}
}

// TestSmallIsKnownToOthers: by the account of the process connectors and plugins know who
// asks, and NetworkPolicies know its pods.
func TestSmallIsKnownToOthers(t *testing.T) {
	objects := rendered(t, file("all"), "--set=profile=small")
	account := "system:serviceaccount:" + release + ":nvsentinel-controller"
	connector := texts(t, objects)["platform-connectors"]["connector.toml"]
	if n := strings.Count(connector, `account = "`+account+`"`); n != 3 { // object monitor, analyzer, node-health-check
		t.Errorf("%d publishers have its account:\n%s", n, connector)
	}
	if args := workloads(t, objects)["csp-plugin-aws"].Spec.Containers[0].Args; !slices.Contains(args, "--callers="+account) {
		t.Errorf("the plugin admits not its account: %v", args)
	}
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		text, err := yaml.Marshal(o.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range controllers {
			if slices.Contains(strings.Fields(strings.ReplaceAll(string(text), "- ", " ")), name) {
				t.Errorf("NetworkPolicy %s is about %s, which has no pods", o.GetName(), name)
			}
		}
	}
}
