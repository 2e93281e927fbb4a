package artifact_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/artifact"
)

func TestTemplate(t *testing.T) {
	object := parse(t, `{spec: {node: "{{ .Node }}", plain: text, three: 3, list: ["{{ .Message }}", "{{ toJson .Codes }}"], count: "{{ len .Codes | toJson }}", mixed: "n={{ toJson .Codes }}", when: "{{ if .Node }}yes{{ end }}"}}`).Object
	made, err := artifact.ParseTemplate(object)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{"Node": "gpu-1", "Message": "a: b\n- {{ .Node }} \u2028 \"x\"", "Codes": []string{"79", "13"}}
	got, err := made.Render(data)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"spec": map[string]any{
		"node": "gpu-1", "plain": "text", "three": float64(3), "list": []any{data["Message"], []any{"79", "13"}}, "count": int64(2), "mixed": `n=["79","13"]`, "when": "yes",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if object["spec"].(map[string]any)["node"] != "{{ .Node }}" {
		t.Error("the template itself was changed")
	}
	for text, problem := range map[string]string{`{spec: {a: ["{{ .Node"]}}`: ".spec.a[0]", `{spec: {a: "{{ nothing . }}"}}`: ".spec.a"} {
		if _, err := artifact.ParseTemplate(parse(t, text).Object); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", text, err)
		}
	}
	made, err = artifact.ParseTemplate(parse(t, `{spec: {a: "{{ .Missing }}"}}`).Object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Render(data); err == nil || !strings.Contains(err.Error(), ".spec.a") {
		t.Errorf("a key that is not there: %v", err)
	}
}
