package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

// value is one key of values.yaml as its text has it.
type value struct {
	path []string
	// text is what stands behind the key: empty if it has keys of its own.
	text    string
	comment string
}

var (
	keyLine = regexp.MustCompile(`^((?:  )*)([\w.-]+):(?: (.*))?$`)
	ruler   = regexp.MustCompile(`^# -+$`)
)

// commented reads the keys of values.yaml in their order, each with the comment above
// it, and the comment that the file begins with.
func commented(text string) (head string, out []value) {
	var path, comment []string
	skip := -1 // the depth of a key whose text or list follows
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		trimmed := strings.TrimLeft(line, " ")
		depth := (len(line) - len(trimmed)) / 2
		m := keyLine.FindStringSubmatch(line)
		switch {
		case trimmed == "":
			if head == "" {
				head = strings.Join(comment, "\n")
			}
			comment = nil
		case skip >= 0 && depth > skip:
		case strings.HasPrefix(trimmed, "#"):
			if !ruler.MatchString(trimmed) {
				comment = append(comment, strings.TrimPrefix(strings.TrimPrefix(trimmed, "#"), " "))
			}
		case m != nil:
			path = append(slices.Clone(path[:depth]), m[2])
			out = append(out, value{path: path, text: m[3], comment: strings.Join(comment, " ")})
			comment, skip = nil, -1
			if m[3] == "|" {
				skip = depth
			}
		case strings.HasPrefix(trimmed, "- "):
			items := strings.Trim(out[len(out)-1].text, "[]")
			out[len(out)-1].text = "[" + strings.TrimPrefix(items+", "+strings.TrimPrefix(trimmed, "- "), ", ") + "]"
		}
	}
	return head, out
}

// explained are the keys that every workload has: they are explained once.
var explained = []string{"replicas", "image", "resources", "nodeSelector", "tolerations", "affinity", "priorityClassName", "podAnnotations", "extraArgs", "extraEnv", "updateStrategy"}

// usual are their defaults that need no explanation.
var usual = []string{"{}", "[]", `""`, "2", `{registry: "", repository: "", tag: "", pullPolicy: ""}`}

const introduction = "# Values of the chart\n\nWritten from `values.yaml` by `make generate`. [Install](../../../docs/get-started/install.md) shows the steps. " +
	"The folder `stages/` has values for each of the first steps.\n\n```\n%s\n```\n\nEach workload also has the keys %s, with the meaning above. They are empty by default, and `replicas` is 2.\n"

const table = "\n| key | default | |\n|---|---|---|\n"

// TestReadme: the chart's README lists every value, from values.yaml.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	head, values := commented(string(text))
	for _, missing := range unread(defaults(t), nil, values) {
		t.Errorf("%s is not read from values.yaml", missing)
	}
	page := fmt.Sprintf(introduction, head, strings.Join(explained, ", "))
	alone := false // values of the top level that have no keys of their own share a table
	for _, v := range values {
		top := len(v.path) == 1
		switch {
		case top && v.text == "":
			page += fmt.Sprintf("\n## `%s`\n", v.path[0])
			if v.comment != "" {
				page += "\n" + cell(v.comment) + "\n"
			}
			page += table
		case top && !alone:
			page += table + row(v, v.path)
		case top:
			page += row(v, v.path)
		case !v.silent(values):
			page += row(v, v.path[1:])
		}
		alone = top && v.text != ""
	}
	reference.Check(t, "distros/helm/nvsentinel/README.md", page)
}

// silent reports whether a key needs no row: it has no comment, and it either is a usual key of
// a workload or only holds other keys.
func (v value) silent(all []value) bool {
	workload := slices.ContainsFunc(all, func(o value) bool { return slices.Equal(o.path, []string{v.path[0], "extraArgs"}) })
	return v.comment == "" && (v.text == "" || workload && len(v.path) == 2 && slices.Contains(explained, v.path[1]) && slices.Contains(usual, v.text))
}

func row(v value, path []string) string {
	given := "`" + v.text + "`"
	switch v.text {
	case "|":
		given = "a text"
	case "":
		given = ""
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", strings.Join(path, "."), cell(given), cell(v.comment))
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`).Replace(s)
}

// unread are the paths of a map of values that are not among those read.
func unread(in map[string]any, at []string, read []value) (out []string) {
	for key, v := range in {
		path := append(slices.Clone(at), key)
		i := slices.IndexFunc(read, func(r value) bool { return slices.Equal(r.path, path) })
		if i < 0 {
			out = append(out, strings.Join(path, "."))
			continue
		}
		if parts, isMap := v.(map[string]any); isMap && read[i].text == "" {
			out = append(out, unread(parts, path, read)...)
		}
	}
	return out
}
