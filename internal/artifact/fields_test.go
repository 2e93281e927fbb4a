package artifact_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/artifact"
)

type event struct {
	Message string
	Codes   []string
	Parts   []part
	Facts   map[string]string
	At      time.Time
	Next    *event
}

type part struct{ Name string }

type sample struct {
	Node   string
	Event  event
	Inputs map[string]any
}

// TestFields: what a text reads of data that has no such field is found without a value,
// and so are the keys that it reads of maps.
func TestFields(t *testing.T) {
	for text, tc := range map[string]struct{ problem, keys string }{
		"no template":                   {},
		"{{ .Node }}":                   {},
		"{{ .Nod }}":                    {problem: ".spec.text: there is no field .Nod, its fields are .Node, .Event, .Inputs"},
		"{{ $.Nod }}":                   {problem: "there is no field .Nod"},
		"{{ quote .Nod }}":              {problem: "there is no field .Nod"},
		"{{ .Node | printf .Nod }}":     {problem: "there is no field .Nod"},
		"{{ (len .Nod) }}":              {problem: "there is no field .Nod"},
		"{{ .Event.Message }}":          {},
		"{{ .Event.Messag }}":           {problem: "there is no field .Event.Messag, its fields are .Message, .Codes, .Parts, .Facts, .At, .Next"},
		"{{ .Event.Next.Next.Messag }}": {problem: "there is no field .Event.Next.Next.Messag"},
		"{{ .Node.Name }}":              {problem: "there is no field .Node.Name: it is a string"},
		"{{ toJson .Event.At }}":        {},
		"{{ .Event.At.Year }}":          {problem: "there is no field .Event.At.Year: time.Time has no fields, and templates cannot call methods"},
		"{{ index .Event.Codes 0 }}":    {},
		"{{ if .Nod }}a{{ end }}":       {problem: "there is no field .Nod"},
		"{{ if .Node }}{{ .Nod }}{{ else }}{{ .Node }}{{ end }}": {problem: "there is no field .Nod"},
		"{{ if .Node }}a{{ else if .Nod }}b{{ end }}":            {problem: "there is no field .Nod"},
		"{{ with .Event }}{{ .Message }}{{ $.Node }}{{ end }}":   {},
		"{{ with .Event }}{{ .Node }}{{ end }}":                  {problem: "there is no field .Node, its fields are .Message"},
		"{{ range .Event.Parts }}{{ .Name }}{{ end }}":           {},
		"{{ range .Event.Parts }}{{ .Nam }}{{ end }}":            {problem: "there is no field .Nam, its fields are .Name"},
		"{{ range $i, $p := .Event.Parts }}{{ $p.X }}{{ end }}":  {},
		"{{ .Event.Facts.rack }}":                                {keys: ".Event.Facts: rack"},
		"{{ .Inputs.boot }}{{ $.Inputs.logs.url | toJson }}":     {keys: ".Inputs: boot logs"},
		"{{ range .Inputs.parts }}{{ .Whatever }}{{ end }}":      {keys: ".Inputs: parts"},
		"{{ with .Inputs }}{{ .boot }}{{ end }}":                 {keys: ".: boot"},
		"{{ (index .Inputs.parts 0).Name }}":                     {keys: ".Inputs: parts"},
	} {
		compiled, err := artifact.ParseTemplate(map[string]any{"spec": map[string]any{"text": text}})
		if err != nil {
			t.Fatal(err)
		}
		keys, err := compiled.Fields(reflect.TypeFor[sample]())
		if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("%s: %v, want %q", text, err, tc.problem)
		}
		got := ""
		for at, names := range keys {
			got += at + ": " + strings.Join(names, " ")
		}
		if diff := cmp.Diff(tc.keys, got); diff != "" {
			t.Errorf("%s: keys (-want +got):\n%s", text, diff)
		}
	}
}
