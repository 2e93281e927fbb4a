package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const withChains = "--set=repairChain.enabled=true"

// chainKind are the flags for one kind of steps.
func chainKind(group, resource, place string) []string {
	const kind = "repairChain.kinds[0]."
	set := "--set=" + kind + "apiGroup=" + group + "," + kind + "resource=" + resource
	if place != "" {
		set += "," + kind + place
	}
	return []string{file("store"), withChains, set}
}

// own are the rights of repair-chain wherever it is, as docs/tasks/add-repair-chain-steps.md lists
// them.
var own = []string{
	"cluster: get nodes",
	"cluster: get,list,watch repairtemplates,repairchains.nvsentinel.dgxc.nvidia.com",
	"cluster: get,list,watch,patch,delete repairruns.nvsentinel.dgxc.nvidia.com",
	"cluster: update repairtemplates/status,repairchains/status,repairruns/status.nvsentinel.dgxc.nvidia.com",
	"default: create,patch events.events.k8s.io",
	"medik8s-leases: get,create,update,delete leases.coordination.k8s.io",
	release + ": create events",
	release + ": create leases.coordination.k8s.io",
	release + ": get,list,watch,create,patch,delete jobs.batch",
	release + ": get,update leases.coordination.k8s.io repair-chain-runs",
	release + ": list,watch configmaps nvsentinel-pause,nvsentinel-brake",
}

// TestRightsOfChains: repair-chain has its rights and those of the kinds that the
// values name, each in its namespace, and nothing where it is off; fault-remediation
// may make runs only where somebody carries them out.
func TestRightsOfChains(t *testing.T) {
	const aws = "--set=janitor.enabled=true,cspPluginAws.enabled=true"
	runs := "cluster: get,list,watch,create repairruns.nvsentinel.dgxc.nvidia.com"
	for name, tc := range map[string]struct {
		with []string
		want []string
		runs bool // whether fault-remediation may make them
	}{
		"off":          {nil, nil, false},
		"on":           {[]string{withChains}, own, true},
		"with janitor": {[]string{withChains, aws}, append(slices.Clone(own), "cluster: get,list,watch,create,patch,delete rebootnodes,terminatenodes,gpuresets.janitor.dgxc.nvidia.com"), true},
		"with kinds": {
			append(chainKind("example.com", "validations", "clusterWide=true"), "--set=repairChain.kinds[1].apiGroup=,repairChain.kinds[1].resource=pods,repairChain.kinds[1].namespaces={a,b}"),
			append(slices.Clone(own), "cluster: get,list,watch,create,patch,delete validations.example.com", "a: get,list,watch,create,patch,delete pods", "b: get,list,watch,create,patch,delete pods"), true,
		},
		"nothing acts": {[]string{withChains, aws, "--set=global.dryRun=true"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, append([]string{file("store")}, tc.with...)...)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, rights(t, objects, "repair-chain")); diff != "" {
				t.Errorf("its rights (-want +got):\n%s", diff)
			}
			if got := slices.Contains(rights(t, objects, "fault-remediation"), runs); got != tc.runs {
				t.Errorf("fault-remediation may make runs: %v", got)
			}
			for _, o := range objects {
				if tc.want == nil && strings.Contains(o.GetName(), "repair-chain") {
					t.Errorf("%s %s is rendered", o.GetKind(), o.GetName())
				}
			}
		})
	}
	if got := rights(t, rendered(t, file("store"), withChains, "--set=faultRemediation.enabled=false"), "fault-remediation"); got != nil {
		t.Errorf("fault-remediation is off, and has %v", got)
	}
}

// TestLeasesOfChains: runs and fault-remediation take the leases of nodes in the namespace
// of all remediators, which is made once, whether NodeHealthChecks take them or not.
func TestLeasesOfChains(t *testing.T) {
	const checks = "--set=nodeHealthCheck.enabled=true"
	for name, tc := range map[string]struct {
		with        []string
		namespace   string
		made, taken bool
	}{
		"neither":           {nil, "medik8s-leases", false, false},
		"chains":            {[]string{withChains}, "medik8s-leases", true, true},
		"checks":            {[]string{checks}, "medik8s-leases", true, true},
		"both":              {[]string{withChains, checks}, "medik8s-leases", true, true},
		"another namespace": {[]string{withChains, "--set=nodeHealthCheck.leaseNamespace=others"}, "others", true, true},
		"it is there":       {[]string{withChains, "--set=nodeHealthCheck.createLeaseNamespace=false"}, "medik8s-leases", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, append([]string{file("store")}, tc.with...)...)
			made := 0
			for _, o := range objects {
				if o.GetKind() == "Namespace" && o.GetName() == tc.namespace {
					made++
				}
			}
			if want := map[bool]int{true: 1}[tc.made]; made != want {
				t.Errorf("the namespace is made %d times, want %d", made, want)
			}
			if got := slices.Contains(rights(t, objects, "fault-remediation"), tc.namespace+": get,create,update leases.coordination.k8s.io"); got != tc.taken {
				t.Errorf("fault-remediation may take leases: %v", got)
			}
			for _, service := range []string{"fault-remediation", "repair-chain"} {
				pod, there := workloads(t, objects)[service]
				if there && slices.Contains(pod.Spec.Containers[0].Args, "--lease-namespace="+tc.namespace) != tc.taken {
					t.Errorf("%s runs with %v", service, pod.Spec.Containers[0].Args)
				}
			}
		})
	}
}

// rights are those that roles give an account.
func rights(t *testing.T, objects []*unstructured.Unstructured, account string) (out []string) {
	t.Helper()
	bound := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() != "ClusterRoleBinding" && o.GetKind() != "RoleBinding" {
			continue
		}
		b := as[rbacv1.RoleBinding](t, o) // the two have one form
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == account && s.Namespace == release }) {
			bound[b.RoleRef.Kind+o.GetNamespace()+"/"+b.RoleRef.Name] = true
		}
	}
	for _, o := range objects {
		if !bound[o.GetKind()+o.GetNamespace()+"/"+o.GetName()] {
			continue
		}
		place := o.GetNamespace()
		if place == "" {
			place = "cluster"
		}
		for _, r := range as[rbacv1.Role](t, o).Rules {
			kind := strings.TrimSuffix(strings.Join(r.Resources, ",")+"."+strings.Join(r.APIGroups, ","), ".")
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", place, strings.Join(r.Verbs, ","), kind, strings.Join(r.ResourceNames, ","))))
		}
	}
	slices.Sort(out)
	return out
}

// TestChainsAreForAdministrators: anyone who may view a cluster may view chains, and no
// role of the chart lets anybody write them.
func TestChainsAreForAdministrators(t *testing.T) {
	viewed := false
	for _, o := range rendered(t, file("all")) {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		role := as[rbacv1.ClusterRole](t, o)
		for label := range role.Labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") && label != "rbac.authorization.k8s.io/aggregate-to-view" {
				t.Errorf("%s is added to %s", role.Name, label)
			}
		}
		viewed = viewed || role.Labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true" && slices.Contains(role.Rules[0].Resources, "repairruns")
		for _, r := range role.Rules {
			if !slices.Contains(r.Resources, "repairtemplates") && !slices.Contains(r.Resources, "repairchains") {
				continue
			}
			for _, verb := range r.Verbs {
				if !slices.Contains([]string{"get", "list", "watch"}, verb) {
					t.Errorf("%s lets somebody %s %v", role.Name, verb, r.Resources)
				}
			}
		}
	}
	if !viewed {
		t.Error("nobody may view runs")
	}
}

// TestJobsPolicy: it names the account of the release's namespace, and can be switched
// off.
func TestJobsPolicy(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		found := false
		for _, o := range rendered(t, file("store"), withChains, "--set=admission.jobs="+value) {
			if o.GetKind() != "ValidatingAdmissionPolicy" || o.GetName() != "nvsentinel-repair-jobs" {
				continue
			}
			found = true
			text, err := json.Marshal(o.Object["spec"])
			if err != nil || !strings.Contains(string(text), "'system:serviceaccount:"+release+":repair-chain'") {
				t.Errorf("its account: %s, %v", text, err)
			}
		}
		if found != want {
			t.Errorf("admission.jobs=%s: rendered %v", value, found)
		}
	}
}
