package cloud

import (
	"reflect"
	"strings"
	"testing"
)

func TestVerify(t *testing.T) {
	id := Identity{
		Names: map[string][]string{"name": {"gpu-1", "gpu-1.internal"}, "hostname": {""}},
		Tags:  map[string]string{"cluster": "c1", "node": "gpu-A", "empty": ""},
	}
	for _, tt := range []struct {
		what, node, tag string
		from            []string
		want            Finding
	}{
		{"a name", "gpu-1", "", []string{"name"}, Proven},
		{"another of its names", "gpu-1.internal", "", []string{"hostname", "name"}, Proven},
		{"in capitals", "GPU-1", "", []string{"name"}, Proven},
		{"a part of a name", "gpu", "", []string{"name"}, Unproven},
		{"a kind that does not count", "gpu-1", "", []string{"hostname"}, Unproven},
		{"an empty name", "", "", []string{"hostname", "tag:empty", "tag:none"}, Unproven},
		{"a tag", "gpu-a", "", []string{"tag:node"}, Proven},
		{"a tag of somebody else", "gpu-1", "", []string{"tag:node"}, Unproven},
		{"no tag", "gpu-1", "", []string{"tag:none"}, Unproven},
		{"of the cluster", "gpu-1", "cluster", []string{"name"}, Proven},
		{"of the cluster by value", "gpu-1", "cluster=c1", []string{"name"}, Proven},
		{"of another cluster", "gpu-1", "cluster=c2", []string{"name"}, OtherCluster},
		{"of no cluster", "gpu-1", "kubernetes.io/cluster/c1", []string{"name"}, OtherCluster},
		{"of the cluster, another name", "gpu-2", "cluster=c1", []string{"name"}, Unproven},
		{"with an empty value", "gpu-1", "empty=", []string{"name"}, Proven},
		{"nothing is known", "gpu-1", "", nil, Unproven},
	} {
		if got := (Proof{NodeNameFrom: tt.from, ClusterTag: tt.tag}).Verify(id, tt.node); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

// Beside a Node that is proven nobody counts who is not; where two are proven, none is
// touched; and no claim of another proves anything.
func TestResolveOwner(t *testing.T) {
	for _, tt := range []struct {
		what    string
		own     Finding
		rivals  map[string]Finding
		want    Finding
		against []string
	}{
		{"alone", Proven, nil, Proven, nil},
		{"alone, unproven", Unproven, nil, Unproven, nil},
		{"an unproven rival", Proven, map[string]Finding{"evil": Unproven}, Proven, nil},
		{"many unproven rivals", Proven, map[string]Finding{"e1": Unproven, "e2": Unproven, "e3": OtherCluster}, Proven, nil},
		{"a proven rival", Unproven, map[string]Finding{"victim": Proven}, Unproven, []string{"victim"}},
		{"two that are proven", Proven, map[string]Finding{"twin": Proven, "evil": Unproven}, Undecided, []string{"twin"}},
		{"none is proven", Unproven, map[string]Finding{"other": Unproven}, Unproven, nil},
		{"of another cluster", OtherCluster, map[string]Finding{"other": OtherCluster}, OtherCluster, nil},
	} {
		if got, against := resolveOwner(tt.own, tt.rivals); got != tt.want || !reflect.DeepEqual(against, tt.against) {
			t.Errorf("%s: %s against %v, want %s against %v", tt.what, got, against, tt.want, tt.against)
		}
	}
}

func TestProofIsValidated(t *testing.T) {
	kinds := []string{"name", "hostname"}
	for want, p := range map[string]Proof{
		"":                       {NodeNameFrom: []string{"name", "tag:kubernetes.io/node"}, ClusterTag: "kubernetes.io/cluster/c1=owned"},
		"--node-name-from":       {},
		`"address"`:              {NodeNameFrom: []string{"name", "address"}},
		`has "tag:"`:             {NodeNameFrom: []string{"tag:"}},
		"(--cluster-tag)":        {NodeNameFrom: []string{"name"}, ClusterTag: "=owned"},
		"name, hostname or tag:": {NodeNameFrom: []string{"Name"}},
	} {
		err := p.Validate(kinds)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}
