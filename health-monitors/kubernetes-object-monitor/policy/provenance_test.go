package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// about makes a file with one policy on objects of a kind, which takes the node from
// an expression; more are lines of its resource.
func about(kind, predicate, node string, more ...string) string {
	group := ""
	if kind == "Event" {
		group = "events.k8s.io"
	}
	return fmt.Sprintf("[[policies]]\nname = \"P\"\nenabled = true\n[policies.resource]\ngroup = %q\nversion = \"v1\"\nkind = %q\n%s\n", group, kind, strings.Join(more, "\n")) +
		"[policies.predicate]\nexpression = '''" + predicate + "'''\n[policies.nodeAssociation]\nexpression = '''" + node +
		"'''\n[policies.healthEvent]\ncomponentClass = \"Node\"\nmessage = \"m\"\nrecommendedAction = \"NONE\"\n"
}

// TestNodeProvenance: a policy is in doubt if tenants decide the node by an object in a
// namespace of theirs.
func TestNodeProvenance(t *testing.T) {
	const itself, ofNode = `resource.reportingInstance`, ` && resource.regarding.kind == 'Node'`
	const kubelet = `resource.reportingController == 'kubelet'` + ofNode
	const inQuestion, recordOnly = "accounts that can write objects of kind %s in any namespace", "processingStrategy = \"PERSIST_ONLY\"\n"
	for name, c := range map[string]struct {
		text     string
		monitors record.Strategy
		doubt    string // the kind; empty if there is none
	}{
		"a Node speaks for itself":                 {one("true"), record.Process, ""},
		"a Pod names a node":                       {about("Pod", "true", "resource.spec.nodeName"), record.Process, "Pod"},
		"a Pod of one namespace":                   {about("Pod", "true", "resource.spec.nodeName", `namespace = "gpu-operator"`), record.Process, ""},
		"a kind without a namespace":               {about("ResourceSlice", "true", "resource.spec.nodeName"), record.Process, ""},
		"for the record only, by the policy":       {about("Pod", "true", "resource.spec.nodeName") + recordOnly, record.Process, ""},
		"for the record only, by the monitor":      {about("Pod", "true", "resource.spec.nodeName"), record.PersistOnly, ""},
		"an Event of the kubelet about its node":   {about("Event", kubelet, itself), record.Process, ""},
		"the same, by the older name":              {about("Event", `resource.reportingComponent == 'kubelet'`+ofNode, itself), record.Process, ""},
		"the same, that asks for the Event itself": {about("Event", "resource != null && "+kubelet, itself), record.Process, ""},
		"an Event of anybody":                      {about("Event", `resource.reason == 'Failed'`, itself), record.Process, "Event"},
		"an Event of anybody, read whole":          {about("Event", `resource != null`, itself), record.Process, "Event"},
		"an Event of the kubelet about any node":   {about("Event", kubelet, "resource.regarding.name"), record.Process, "Event"},
		"an Event whose Pod says who reports": {
			about("Event", `lookup('v1', 'Pod', 'a', 'b').reportingController == 'kubelet'`, itself), record.Process, "Event",
		},
		"another kind that says who reports": {about("Report", kubelet, itself), record.Process, "Report"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Parse("policies.toml", c.text, objects{})
			if err != nil {
				t.Fatal(err)
			}
			doubt := strings.Join(set.Policies[0].Warnings(c.monitors), "\n")
			if c.doubt == "" {
				if doubt != "" {
					t.Errorf("it is in doubt: %s", doubt)
				}
				return
			}
			for _, part := range []string{fmt.Sprintf(inQuestion, c.doubt), "policies.resource", `processingStrategy = "PERSIST_ONLY"`} {
				if !strings.Contains(doubt, part) {
					t.Errorf("%q does not say %q", doubt, part)
				}
			}
		})
	}
}

// TestTextThatOthersChoose: a policy that acts on text is in doubt regardless of who writes the
// object, and its warning names the field.
func TestTextThatOthersChoose(t *testing.T) {
	const recordOnly = "processingStrategy = \"PERSIST_ONLY\"\n"
	for predicate, want := range map[string]string{
		"resource.note.contains('nvml error')":                                                         "resource.note",
		"resource.status.conditions.exists(c, c.type == 'X' && c.message.contains('y'))":               "resource.status.conditions[].message",
		"resource.status.conditions.exists(c, c.type == 'X' && c.status == 'True' && c.reason == 'Y')": "",
		"resource.spec.containers.exists(c, c.image.startsWith('x'))":                                  "resource.spec.containers[].image",
		"resource.spec.containers.exists(c, 'x' in c.command)":                                         "resource.spec.containers[].command",
		"resource.spec.containers.exists(c, c.name == 'x')":                                            "resource.spec.containers[].name",
		"resource.metadata.name.startsWith('x')":                                                       "resource.metadata.name",
		"resource.metadata.namespace == 'x'":                                                           "",
		"has(resource.status.message) && resource.status.phase == 'Failed'":                            "",
		"lookup('v1', 'Node', '', 'n').status.conditions[0].message == 'x'":                            "Node.status.conditions[].message",
		"lookup('v1', 'Pod', 'a', resource.spec.pod).status.phase == 'Failed'":                         "",
	} {
		for _, strategy := range []string{"", recordOnly} {
			text := about("Pod", predicate, "resource.spec.nodeName", `namespace = "gpu-operator"`) + strategy
			set, err := Parse("policies.toml", text, objects{})
			if err != nil {
				t.Fatalf("%s: %v", predicate, err)
			}
			doubt := strings.Join(set.Policies[0].Warnings(record.Process), "\n")
			if want == "" || strategy != "" {
				if doubt != "" {
					t.Errorf("%s: it is in doubt: %s", predicate, doubt)
				}
				continue
			}
			if !strings.Contains(doubt, "acts on text ("+want+")") {
				t.Errorf("%s: %q does not name %s", predicate, doubt, want)
			}
		}
	}
}

// TestPodEventsAreWarnedOf: a tenant can make a kubelet write such Events, whatever their
// content.
func TestPodEventsAreWarnedOf(t *testing.T) {
	const kubelet = "resource.reportingController == 'kubelet' && resource.reason == 'FailedMount'"
	for name, c := range map[string]struct {
		predicate string
		more      []string
		doubt     bool
	}{
		"about whatever":          {kubelet, nil, true},
		"by the Pod's node":       {kubelet + " && lookup('v1', 'Pod', resource.regarding.namespace, resource.regarding.name).spec.nodeName == 'x'", nil, true},
		"about Nodes":             {kubelet + " && resource.regarding.kind == 'Node'", nil, false},
		"of one namespace":        {kubelet, []string{`namespace = "gpu-operator"`}, false},
		"of a Pod that says kind": {kubelet + " && lookup('v1', 'Pod', 'a', 'b').regarding.kind == 'Node'", nil, true},
	} {
		set, err := Parse("policies.toml", about("Event", c.predicate, "resource.reportingInstance", c.more...), objects{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		doubt := strings.Join(set.Policies[0].Warnings(record.Process), "\n")
		if strings.Contains(doubt, "accounts that can create a Pod") != c.doubt || !c.doubt && doubt != "" {
			t.Errorf("%s: %q", name, doubt)
		}
	}
}
