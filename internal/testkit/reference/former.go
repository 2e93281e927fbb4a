package reference

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// names is the list that nvsentinel convert-config rewrites by.
const names = "cli/convert/names.yaml"

// tryFormer gives a program each key of the earlier NVSentinel that the list has for it. The
// error names the key, and its present name or the command that knows it.
func tryFormer(t testing.TB, program string, defaults any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), names))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Kind, Name, To string
		At             []string
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		reads := slices.ContainsFunc(n.At, func(at string) bool { return program == at || strings.HasPrefix(program, at+"-") })
		if !reads || n.Kind != "key" && n.Kind != "spelling" {
			continue
		}
		path := strings.Split(n.Name, ".")
		document := map[string]any{path[len(path)-1]: "x"}
		for _, table := range slices.Backward(path[:len(path)-1]) {
			document = map[string]any{table: document}
		}
		_, output := attempt{document: document}.load(t, defaults)
		if !strings.Contains(output, "unknown key") || !strings.Contains(output, "nvsentinel convert-config --program ") {
			t.Errorf("%s of the earlier NVSentinel is answered with: %.600s", n.Name, output)
		}
	}
}
