package action

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/artifact"
	"github.com/nvidia/nvsentinel/internal/nodemark"
	"github.com/nvidia/nvsentinel/internal/remediation"
)

//go:embed templates/*.yaml
var embedded embed.FS

const embeddedPrefix = "embedded:"

// Input is what a template can name.
type Input struct {
	// Name is the object's name.
	Name     string
	NodeName string
	// HealthEventID is the id of the record that asked for the repair.
	HealthEventID string
	HealthEvent   record.Event
	// RecommendedAction is the number on the wire, RecommendedActionName the name.
	RecommendedAction     int32
	RecommendedActionName string
	ApiGroup              string //nolint:revive // templates of others name it so
	Version               string
	Kind                  string
	Namespace             string
	Session               string
	Group                 string
	Ordinal               int
	// Chain and Fault are what a run of a chain receives.
	Chain string
	Fault Fault
}

// Render makes the object of an attempt. Whatever the template contains, its name,
// kind, marks and owners are ours.
func (a Action) Render(r record.Record, at record.Attempt) (*unstructured.Unstructured, error) {
	var text bytes.Buffer
	in := Input{
		Name: at.Name, NodeName: r.Event.NodeName, HealthEventID: r.ID, HealthEvent: r.Event,
		RecommendedAction: int32(record.ActionNumber(r.Event.Action())), RecommendedActionName: string(a.Name),
		ApiGroup: a.GVK.Group, Version: a.GVK.Version, Kind: a.GVK.Kind, Namespace: a.Namespace,
		Session: at.Session, Group: at.Group, Ordinal: at.Ordinal, Chain: a.Chain, Fault: faultOf(r, at.Session, a.Name),
	}
	if err := a.template.Execute(&text, in); err != nil {
		return nil, fmt.Errorf("executing template %s: %w", a.Template, err)
	}
	body, err := onlyObject(text.Bytes())
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", a.Template, err)
	}
	obj := &unstructured.Unstructured{Object: body}
	if err := a.own(obj, r, at); err != nil {
		return nil, fmt.Errorf("template %s: %w", a.Template, err)
	}
	return obj, nil
}

// onlyObject reads the one object of a rendered template; documents without
// content do not count.
func onlyObject(text []byte) (map[string]any, error) {
	var objects []map[string]any
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("splitting the YAML: %w", err)
		}
		var body map[string]any
		if err := yaml.Unmarshal(document, &body); err != nil {
			return nil, fmt.Errorf("reading the YAML: %w", err)
		}
		if len(body) > 0 {
			objects = append(objects, body)
		}
	}
	switch len(objects) {
	case 0:
		return nil, errors.New("renders no object")
	case 1:
		return objects[0], nil
	}
	return nil, fmt.Errorf("renders %d objects, must render exactly one", len(objects))
}

func (a Action) own(obj *unstructured.Unstructured, r record.Record, at record.Attempt) error {
	if got := obj.GroupVersionKind(); got != a.GVK {
		return fmt.Errorf("renders a %s, not a %s", got, a.GVK)
	}
	if _, ok := obj.Object["metadata"].(map[string]any); !ok && obj.Object["metadata"] != nil {
		return errors.New("metadata is not an object")
	}
	if err := a.target(obj, r.Event.NodeName); err != nil {
		return err
	}
	remediation.Identity{
		Name: at.Name, Namespace: a.Namespace,
		Annotations: map[string]string{
			nodemark.SessionAnnotation: at.Session, remediation.RecordAnnotation: r.ID, remediation.NodeAnnotation: r.Event.NodeName,
			remediation.GroupAnnotation: at.Group, remediation.OrdinalAnnotation: strconv.Itoa(at.Ordinal),
		},
	}.Own(obj)
	return nil
}

// target checks that the object acts on the record's node. A spec.nodeName of
// another node is an error in any kind, a missing one in those of the janitor.
func (a Action) target(obj *unstructured.Unstructured, node string) error {
	got, found, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "nodeName")
	switch {
	case (err != nil || !found) && a.GVK.Group == janitorGroup:
		return fmt.Errorf("renders a %s without spec.nodeName", a.GVK.Kind)
	case err == nil && found && got != node:
		return fmt.Errorf("renders a %s for node %q, the fault is on node %q: check that all strings of the template are quoted", a.GVK.Kind, fmt.Sprint(got), node)
	}
	return nil
}

// load finds the template's text: inline, embedded, or a file.
func (a *Action) load(c Config, templates Templates, read func(string) ([]byte, error)) error {
	file := c.TemplateFileName
	if file == "" && c.Template == "" {
		file = templates.FileName
	}
	var text []byte
	var err error
	switch {
	case c.Template != "" && c.TemplateFileName != "":
		return errors.New("template: template and templateFileName are mutually exclusive, set one")
	case c.Template != "":
		file, text = "inline", []byte(c.Template)
	case file == "":
		return errors.New("template: template or templateFileName is required")
	case strings.HasPrefix(file, embeddedPrefix):
		text, err = embedded.ReadFile("templates/" + strings.TrimPrefix(file, embeddedPrefix))
	default:
		text, err = read(file)
	}
	if err != nil {
		return fmt.Errorf("templateFileName: reading %s: %w", file, err)
	}
	sum := sha256.Sum256(text)
	a.Template, a.Digest = file, "sha256:"+hex.EncodeToString(sum[:])
	a.template, err = template.New(file).Funcs(artifact.Functions).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return fmt.Errorf("template: parsing %s: %w", file, err)
	}
	return nil
}

// tryTemplate renders a made-up fault, so that a broken template is a start-up
// error and not a node that waits.
func (a Action) tryTemplate() error {
	sample := record.Record{ID: "00000000-0000-7000-8000-000000000000", Event: record.Event{NodeName: "node-1", RecommendedAction: a.Name}}
	if !a.Name.Known() {
		sample.Event.RecommendedAction, sample.Event.CustomRecommendedAction = record.ActionCustom, string(a.Name)
	}
	_, err := a.Render(sample, record.Attempt{Name: "node-1-00000000", Session: sample.ID, Group: a.Group, Ordinal: 1})
	return err
}

func (c Config) resource() string {
	if c.Resource != "" {
		return c.Resource
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: c.APIGroup, Version: c.Version, Kind: c.Kind})
	return plural.Resource
}
