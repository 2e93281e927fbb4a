// Package policy holds a user's policies for Kubernetes objects: a file of policies, each a
// CEL predicate over one kind of object, and what is to be reported when it holds. It reads
// the file strictly, compiles every expression once, and evaluates them on objects. It does
// no I/O and reads no clock.
package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/config"
)

// maxMessage bounds a policy's message in bytes; every open fault carries it.
const maxMessage = 1024

// document is the file as it is written.
type document struct {
	Policies []entry `toml:"policies"`
}

type entry struct {
	Name            string      `toml:"name"`
	Enabled         *bool       `toml:"enabled"`
	Resource        target      `toml:"resource"`
	Predicate       expression  `toml:"predicate"`
	NodeAssociation *expression `toml:"nodeAssociation"`
	HealthEvent     healthEvent `toml:"healthEvent"`
}

type target struct {
	Group     string `toml:"group"`
	Version   string `toml:"version"`
	Kind      string `toml:"kind"`
	Namespace string `toml:"namespace"`
}

type expression struct {
	Expression string `toml:"expression"`
}

type healthEvent struct {
	ComponentClass          string           `toml:"componentClass"`
	IsFatal                 bool             `toml:"isFatal"`
	Message                 string           `toml:"message"`
	RecommendedAction       string           `toml:"recommendedAction"`
	CustomRecommendedAction string           `toml:"customRecommendedAction"`
	ErrorCode               []string         `toml:"errorCode"`
	ProcessingStrategy      string           `toml:"processingStrategy"`
	QuarantineOverrides     *record.Override `toml:"quarantineOverrides"`
	DrainOverrides          *record.Override `toml:"drainOverrides"`
}

// read decodes the text strictly: an unknown key is an error that names it.
func read(file, text string) (document, error) {
	var d document
	if err := config.Decode(file, []byte(text), &d); err != nil {
		return d, err
	}
	if len(d.Policies) == 0 {
		return d, fmt.Errorf("%s: [[policies]] is missing, add at least one policy", file)
	}
	return d, nil
}

// checkName is what a policy's name must look like: it is the check name of
// its events and the type of a node condition.
var checkName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// problems lists what is wrong with an entry, apart from its expressions.
func (e entry) problems() []string {
	var out []string
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	h := e.HealthEvent
	wrong(!checkName.MatchString(e.Name), "name %q is not up to 63 letters, digits, '-', '_' and '.' with a letter or digit at both ends", e.Name)
	wrong(e.Enabled == nil, "enabled is missing")
	wrong(e.Resource.Version == "", "resource.version is missing")
	wrong(e.Resource.Kind == "", "resource.kind is missing")
	wrong(e.node() && e.Resource.Namespace != "", "resource.namespace %q: a Node has no namespace", e.Resource.Namespace)
	wrong(strings.TrimSpace(e.Predicate.Expression) == "", "predicate.expression is missing")
	wrong(e.node() && e.NodeAssociation != nil, "nodeAssociation: a Node is associated with itself")
	wrong(!e.node() && e.NodeAssociation == nil, "nodeAssociation.expression is missing: kind %s requires an expression that returns the node name", e.Resource.Kind)
	wrong(e.NodeAssociation != nil && strings.TrimSpace(e.NodeAssociation.Expression) == "", "nodeAssociation.expression is missing")
	wrong(h.ComponentClass == "", "healthEvent.componentClass is missing")
	wrong(h.Message == "", "healthEvent.message is missing")
	wrong(len(h.Message) > maxMessage, "healthEvent.message has %d bytes, at most %d are allowed", len(h.Message), maxMessage)
	return append(out, h.problems()...)
}

func (h healthEvent) problems() []string {
	var out []string
	action, err := record.ParseAction(h.RecommendedAction)
	switch {
	case h.RecommendedAction == "":
		out = append(out, "healthEvent.recommendedAction is missing")
	case err != nil:
		out = append(out, "healthEvent.recommendedAction: "+err.Error())
	case (action == record.ActionCustom) != (h.CustomRecommendedAction != ""):
		out = append(out, "healthEvent.customRecommendedAction requires recommendedAction CUSTOM, and CUSTOM requires it")
	}
	if _, err := record.ParseStrategy(h.ProcessingStrategy); h.ProcessingStrategy != "" && err != nil {
		out = append(out, "healthEvent.processingStrategy: "+err.Error())
	}
	for name, o := range map[string]*record.Override{"quarantineOverrides": h.QuarantineOverrides, "drainOverrides": h.DrainOverrides} {
		if o != nil && o.Force && o.Skip {
			out = append(out, "healthEvent."+name+": force and skip are mutually exclusive")
		}
	}
	for i, code := range h.ErrorCode {
		if code == "" || slices.Contains(h.ErrorCode[:i], code) {
			out = append(out, fmt.Sprintf("healthEvent.errorCode[%d] %q is empty or a duplicate", i, code))
		}
	}
	return out
}

func (e entry) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: e.Resource.Group, Version: e.Resource.Version, Kind: e.Resource.Kind}
}

func (e entry) node() bool { return e.Resource.Group == "" && e.Resource.Kind == "Node" }
