package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	pod := Pod{"training", "worker-0"}
	const one, two = `{"devices":{"nvidia.com/gpu":["GPU-a"]}}`, `{"devices":{"nvidia.com/gpu":["GPU-a","GPU-b"]}}`
	for _, c := range []struct {
		name   string
		give   map[string][]string // nil: the kubelet does not list the pod
		before string
		want   []Change
	}{
		{"a pod got a GPU", map[string][]string{"nvidia.com/gpu": {"GPU-a"}}, "", []Change{{pod, "u1", one}}},
		{"it is annotated", map[string][]string{"nvidia.com/gpu": {"GPU-a"}}, one, nil},
		{"the kubelet's order differs", map[string][]string{"nvidia.com/gpu": {"GPU-b", "GPU-a"}}, two, nil},
		{"somebody wrote another one", map[string][]string{"nvidia.com/gpu": {"GPU-a"}}, two, []Change{{pod, "u1", one}}},
		{"somebody wrote nonsense", map[string][]string{"nvidia.com/gpu": {"GPU-a"}}, "{", []Change{{pod, "u1", one}}},
		{"a pod without GPUs claims one", map[string][]string{"cpu": {"1"}}, one, []Change{{pod, "u1", ""}}},
		{"a pod without GPUs", map[string][]string{"example.com/nic": {"n1"}}, "", nil},
		{"a pod whose GPUs are none claims one", map[string][]string{"nvidia.com/gpu": {}}, one, []Change{{pod, "u1", ""}}},
		{"the kubelet does not know it", nil, one, nil},
		{
			"a part of a GPU", map[string][]string{"nvidia.com/mig-1g.10gb": {"MIG-x"}, "nvidia.com/gpu": {"GPU-a::3"}}, "",
			[]Change{{pod, "u1", `{"devices":{"nvidia.com/gpu":["GPU-a::3"],"nvidia.com/mig-1g.10gb":["MIG-x"]}}`}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := Allocation{}
			for resource, ids := range c.give {
				held.Give(pod, resource, ids)
			}
			got, all := Changes(held, []Marked{{pod, "u1", c.before}})
			if diff := cmp.Diff(c.want, got); diff != "" || !all {
				t.Errorf("all %t, changes (-want +got):\n%s", all, diff)
			}
			held.Give(Pod{"other", "pod"}, "nvidia.com/gpu", []string{"GPU-z"})
			if again, all := Changes(held, []Marked{{pod, "u1", c.before}}); all || len(again) != len(got) {
				t.Errorf("with a pod that is not listed yet: all %t, changes %v", all, again)
			}
		})
	}
}

// TestOnlyAPodWithGPUsIsWaitedFor: a pod that the API server does not show yet is
// looked for again only if there is something to write on it.
func TestOnlyAPodWithGPUsIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name, resource string
		ids            []string
		all            bool
	}{
		{"a pod with one GPU", "nvidia.com/gpu", []string{"GPU-a"}, false},
		{"a pod whose GPUs are none", "nvidia.com/gpu", nil, true},
		{"a pod with another device", "example.com/nic", []string{"n1"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := Allocation{}
			held.Give(Pod{"training", "worker-0"}, c.resource, c.ids)
			if changes, all := Changes(held, nil); all != c.all || len(changes) > 0 {
				t.Errorf("all %t, want %t; changes %v", all, c.all, changes)
			}
		})
	}
}

// TestOrderMeansNothing: what is held is the same, whatever the order in which the
// kubelet lists containers and ids.
func TestOrderMeansNothing(t *testing.T) {
	pod := Pod{"training", "worker-0"}
	held := func(answers ...[]string) Allocation {
		h := Allocation{}
		for _, ids := range answers {
			h.Give(pod, "nvidia.com/gpu", ids)
		}
		return h
	}
	want := held([]string{"GPU-a", "GPU-b", "GPU-c"})
	for _, got := range []Allocation{
		held([]string{"GPU-c", "GPU-a", "GPU-b"}),
		held([]string{"GPU-b", "GPU-a"}, []string{"GPU-c"}),
		held([]string{"GPU-c"}, []string{"GPU-a", "GPU-b"}),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("another order makes another answer (-want +got):\n%s", diff)
		}
	}
}
