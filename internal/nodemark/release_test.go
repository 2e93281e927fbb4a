package nodemark_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/nodemark"
)

// TestReleaseCause: a lifted mark is a release if a person lifted it while no repair
// was active; a request always is; and where the user is not known there is none.
func TestReleaseCause(t *testing.T) {
	const driver = "system:serviceaccount:gpu-operator:nvidia-driver"
	set := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { nodemark.Annotate(n, key, value) }
	}
	by := func(user string) func(*corev1.Node) { return set(nodemark.LiftedByAnnotation, user) }
	uncordon := func(n *corev1.Node) { n.Spec.Unschedulable = false }
	untaint := func(n *corev1.Node) { n.Spec.Taints = nil }
	claimed := set(nodemark.RepairAnnotation, "uid")
	remediating := func(n *corev1.Node) { nodemark.SetState(n, nodemark.Remediating) }
	anyone := set(nodemark.AnyoneReleasesAnnotation, nodemark.True)
	asked := set(nodemark.ReleasePrefix+"s1", "alice: looked at it")
	for name, tt := range map[string]struct {
		do     []func(*corev1.Node)
		want   nodemark.ReleaseCause
		lifted bool // a mark is missing and comes back
	}{
		"nothing":                               {nil, nodemark.NotReleased, false},
		"a person uncordons":                    {[]func(*corev1.Node){uncordon, by("alice")}, nodemark.ByUncordon, false},
		"an administrator's certificate":        {[]func(*corev1.Node){uncordon, by("system:admin")}, nodemark.ByUncordon, false},
		"a person removes our taint":            {[]func(*corev1.Node){untaint, by("alice")}, nodemark.ByUntaint, false},
		"a service account uncordons":           {[]func(*corev1.Node){uncordon, by(driver)}, nodemark.NotReleased, true},
		"a service account removes our taint":   {[]func(*corev1.Node){untaint, by(driver)}, nodemark.NotReleased, true},
		"a kubelet":                             {[]func(*corev1.Node){uncordon, by("system:node:n")}, nodemark.NotReleased, true},
		"a component of the control plane":      {[]func(*corev1.Node){uncordon, by("system:kube-controller-manager")}, nodemark.NotReleased, true},
		"nobody knows who uncordons":            {[]func(*corev1.Node){uncordon}, nodemark.NotReleased, true},
		"nobody knows who removes our taint":    {[]func(*corev1.Node){untaint}, nodemark.NotReleased, true},
		"a person, while a repair claims":       {[]func(*corev1.Node){uncordon, by("alice"), claimed}, nodemark.NotReleased, true},
		"a person, while a repair is under way": {[]func(*corev1.Node){uncordon, by("alice"), remediating}, nodemark.NotReleased, true},
		"a request":                             {[]func(*corev1.Node){asked}, nodemark.ByRequest, false},
		"a request while a repair claims":       {[]func(*corev1.Node){asked, claimed, remediating}, nodemark.ByRequest, false},
		"a request for another session":         {[]func(*corev1.Node){set(nodemark.ReleasePrefix+"s0", "alice: ok")}, nodemark.NotReleased, false},
		"a request in nobody's name":            {[]func(*corev1.Node){set(nodemark.ReleasePrefix+"s1", ": ok")}, nodemark.NotReleased, false},
		"a name alone, and nothing lifted":      {[]func(*corev1.Node){by("alice")}, nodemark.NotReleased, false},
		"anyone: a service account":             {[]func(*corev1.Node){uncordon, by(driver), anyone}, nodemark.ByUncordon, false},
		"anyone: nobody knows, in a repair":     {[]func(*corev1.Node){untaint, claimed, anyone}, nodemark.ByUntaint, false},
		"no session":                            {[]func(*corev1.Node){uncordon, by("alice"), set(nodemark.SessionAnnotation, "")}, nodemark.NotReleased, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(map[string]string{
				nodemark.SessionAnnotation: "s1", nodemark.QuarantineHealthEventIsCordoned: nodemark.True,
				nodemark.QuarantineHealthEventAppliedTaints: `[{"key":"gpu","value":"xid","effect":"NoSchedule"}]`,
			}, true, testTaint)
			for _, do := range tt.do {
				do(node)
			}
			if m := nodemark.Read(node); m.Released != tt.want || m.Missing != tt.lifted {
				t.Errorf("released by %q, missing %t; want %q, %t", m.Released, m.Missing, tt.want, tt.lifted)
			}
		})
	}
}

// TestAForeignCordonThatGoesIsMissing until ours takes its place.
func TestAForeignCordonThatGoesIsMissing(t *testing.T) {
	node := nodeWith(map[string]string{nodemark.SessionAnnotation: "s1", nodemark.QuarantineHealthEventCordonPreExisting: nodemark.True}, false)
	if m := nodemark.Read(node); !m.Missing || m.Lifted != nodemark.NotReleased || m.Released != nodemark.NotReleased {
		t.Errorf("%+v", m)
	}
}

// TestRestoredIsReadAsWritten: it is read as written, and what somebody broke is read as empty.
func TestRestoredIsReadAsWritten(t *testing.T) {
	want := nodemark.Restored{Count: 3, At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), By: "x", Mark: nodemark.ByUncordon}
	node := &corev1.Node{}
	nodemark.SetRestored(node, want)
	if diff := cmp.Diff(want, nodemark.Read(node).Restored); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	node.Annotations[nodemark.RestoredAnnotation] = `{"count":"x"}`
	if got := nodemark.Read(node).Restored; got != (nodemark.Restored{}) {
		t.Errorf("of a broken one: %+v", got)
	}
	nodemark.SetRestored(node, nodemark.Restored{})
	if _, there := node.Annotations[nodemark.RestoredAnnotation]; there {
		t.Error("nothing was restored, and the annotation is there")
	}
}

// TestTheEndOfASessionTakesItsRequestsAway, and what was noted of lifted marks.
func TestTheEndOfASessionTakesItsRequestsAway(t *testing.T) {
	node := nodeWith(map[string]string{
		nodemark.ReleasePrefix + "s1": "a: b", nodemark.LiftedByAnnotation: "a", nodemark.RestoredAnnotation: "{}", nodemark.AnyoneReleasesAnnotation: "True", "mine": "x",
	}, false, record.Taint{})
	nodemark.EndRelease(node)
	if diff := cmp.Diff(map[string]string{"mine": "x"}, node.Annotations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
