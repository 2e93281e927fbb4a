package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// place is a text in a file that a user reads.
type place struct {
	file string
	line int
	text string
}

// accepted are texts with a private word that is right there, or that stays: a part of the file's path, the text,
// and the reason.
var accepted = []struct {
	file   string
	text   *regexp.Regexp
	reason string
}{
	{"/former.go", regexp.MustCompile(`^[\w./-]+$`), "names of earlier builds, which are read and not written"},
	{"internal/config/renamed.go", regexp.MustCompile(`^\w+$`), "keys of earlier builds, which an error names"},
	{"internal/checkpoint/", regexp.MustCompile(`^book\.json\.gz$`), "a key of earlier builds, which is read"},
	{"repair-chain/chain/", regexp.MustCompile(`^StampFailed$`), "a reason of earlier builds, which is read"},
	{"", regexp.MustCompile(`^[a-z-]*/(?:[a-z]+-)?(?:stamped|spooled|judged)$`), "a crash point, which tests alone name"},
	{"", regexp.MustCompile(`^(?:told|deaths|keyDeaths|firstLook|lives\.json|lives of consumers)$`), "state on disk, in the store or in an event, which an upgrade has to read"},
	{"lifecycle/report.go", regexp.MustCompile(`^csp maintenance .*: telling %d$`), "the source of an event's ID, which two versions have to derive alike"},
	{"node-health-check/triage/", regexp.MustCompile(`^tell$`), "a step of a plan, which tests alone name"},
	{"store-client/", regexp.MustCompile(`^verdict$`), "a column or field of the stored record, which keeps its name"},
	{"internal/healthrule/", regexp.MustCompile(`^NoStampedObject$`), "the specification of health rules calls a rendered object stamped"},
	{"platform-connectors/internal/", regexp.MustCompile(`^nvsentinel-anew$`), "metadata between connectors and gateways of two versions"},
}

// acceptedBy is the exception for a text, -1 if there is none.
func acceptedBy(p place) int {
	for i, a := range accepted {
		if strings.Contains(p.file, a.file) && a.text.MatchString(p.text) {
			return i
		}
	}
	return -1
}

// camel and initial are places within a name where a word begins.
var (
	camel   = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	initial = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
)

// privateIn are the findings in a text: names such as NodeIsALemon or spool-dir are read word by word.
func privateIn(p place) []string {
	text := camel.ReplaceAllString(strings.NewReplacer("_", " ", `\n`, " ").Replace(p.text), "$1 $2")
	text = initial.ReplaceAllString(text, "$1 $2")
	if !strings.Contains(p.text, " ") {
		text = strings.ReplaceAll(text, "-", " ")
	}
	return wordsIn(text)
}

// textsOf are the texts of a file that users read, none if it is of another kind.
func textsOf(file, text string) ([]place, error) {
	switch ofChart := strings.HasPrefix(file, chart); {
	case strings.HasSuffix(file, "_test.go"), strings.Contains(file, "/testdata/"), strings.HasPrefix(file, "platform-connectors/internal/fleet/"):
		return nil, nil
	case strings.HasPrefix(file, "tests/") && !strings.HasPrefix(file, "tests/demo/") && !strings.HasPrefix(file, "tests/cmd/demo/"):
		return nil, nil // contributors read them
	case path.Ext(file) == ".go":
		return literals(file, text)
	case ofChart && strings.Contains(file, "/templates/") && path.Base(file) != "NOTES.txt":
		return quoted(file, text), nil
	case ofChart && strings.Count(file, "/") == 3 && path.Ext(file) != ".md", ofChart && slices.Contains([]string{".json", ".txt"}, path.Ext(file)),
		file == "Makefile", path.Dir(file) == "hack" && path.Ext(file) == ".sh":
		return lines(file, text), nil
	}
	return nil, nil
}

// lines are all lines of a file whose comments and names users read too.
func lines(file, text string) (out []place) {
	for i, line := range strings.Split(text, "\n") {
		out = append(out, place{file, i + 1, line})
	}
	return out
}

// message is a text of a template: a quoted string of several words.
var message = regexp.MustCompile(`"[^"\n]* [^"\n]*"`)

func quoted(file, text string) (out []place) {
	for _, line := range lines(file, text) {
		for _, m := range message.FindAllString(line.text, -1) {
			out = append(out, place{file, line.line, m})
		}
	}
	return out
}

// pair is one entry of a struct tag.
var pair = regexp.MustCompile(`(\w+):"((?:[^"\\]|\\.)*)"`)

// literals are the strings of a Go file: texts and names, and the entries of struct tags. Import paths, generated
// files and files that only tests use have none.
func literals(file, text string) (out []place, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, err
	}
	for _, i := range parsed.Imports {
		if i.Path.Value == `"testing"` {
			return nil, nil
		}
	}
	tags := map[ast.Node]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = n.Tag != nil
		case *ast.BasicLit:
			value, bad := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || bad != nil {
				return true
			}
			line := set.Position(n.Pos()).Line
			if !tags[n] {
				out = append(out, place{file, line, value})
				return true
			}
			for _, m := range pair.FindAllStringSubmatch(value, -1) {
				name, _, _ := strings.Cut(reflect.StructTag(value).Get(m[1]), ",omit")
				if m[1] != "enforced" { // it names a function
					out = append(out, place{file, line, name})
				}
			}
		}
		return true
	})
	return out, nil
}

// userTexts are the texts of all files that users read.
func userTexts(t *testing.T) (out []place) {
	t.Helper()
	all := texts(t)
	for _, file := range []string{
		"Makefile", "distros/helm/nvsentinel/dashboards/overview.json", "distros/helm/nvsentinel/dashboards/pipeline.json",
		"distros/helm/nvsentinel/values.schema.json", "distros/helm/nvsentinel/templates/NOTES.txt",
	} {
		all[file] = read(t, file)
	}
	kinds := map[string]bool{}
	for file, text := range all {
		places, err := textsOf(file, text)
		if err != nil {
			t.Error(err)
		}
		out = append(out, places...)
		kinds[path.Ext(file)] = kinds[path.Ext(file)] || len(places) > 0
	}
	for _, kind := range []string{".go", ".yaml", ".json", ".txt", ".tpl", ".sh", ""} {
		if !kinds[kind] || len(out) < 20000 {
			t.Errorf("%d texts, of files %q: %v", len(out), kind, kinds[kind])
		}
	}
	return out
}

// TestTextsHaveNoPrivateWords: logs, Events, errors, help, metrics, reasons and other names in Go, and the texts
// of the chart, the Makefile and the scripts use standard terms.
func TestTextsHaveNoPrivateWords(t *testing.T) {
	needed := map[int]bool{}
	for _, p := range userTexts(t) {
		found := privateIn(p)
		if by := acceptedBy(p); by >= 0 {
			needed[by] = needed[by] || len(found) > 0
			continue
		}
		for _, word := range found {
			t.Errorf("%s:%d: %s: %.120q", p.file, p.line, word, p.text)
		}
	}
	for i, a := range accepted {
		if !needed[i] {
			t.Errorf("no text below %q needs the exception for %s: take it out", a.file, a.text)
		}
	}
}

const chart = "distros/helm/nvsentinel/"

// inGo is a statement within a file of Go, in its sixth line.
func inGo(code string) string {
	return "package x\n\nimport \"example.com/lemon\"\n\nfunc f() {\n" + code + "\n}\n"
}

// planted are texts of each kind with a private word, and its line.
var planted = []struct {
	name, file, text string
	line             int
}{
	{"log", "a/b.go", inGo(`slog.Info("the lemon was repaired", "node", n)`), 6},
	{"log key", "a/b.go", inGo(`slog.Info("node repaired", "lemon", n)`), 6},
	{"Event", "a/b.go", inGo(`recorder.Eventf(node, "Normal", "Repaired", "the node was a lemon: %s", n)`), 6},
	{"error", "a/b.go", inGo("return fmt.Errorf(\n\"the emergency brake is on: %w\", err)"), 7},
	{"new error", "a/b.go", inGo(`return errors.New("no room")`), 6},
	{"status", "a/b.go", inGo(`return status.Errorf(codes.Internal, "the spool is full")`), 6},
	{"flag", "a/b.go", inGo("flags.String(`spool-dir`, ``, `Folder`)"), 6},
	{"flag help", "a/b.go", inGo(`flags.Bool("x", false, "Mend the node")`), 6},
	{"command help", "a/b.go", inGo(`return &cobra.Command{Use: "x", Short: "Tell why"}`), 6},
	{"metric help", "a/b.go", inGo(`prometheus.NewCounter(prometheus.CounterOpts{Name: "x", Help: "Nodes judged."})`), 6},
	{"description of a metric", "a/b.go", inGo(`prometheus.NewDesc("x", "Records set aside.", nil, nil)`), 6},
	{"reason", "a/b.go", inGo(`const reason Reason = "NodeIsALemon"`), 6},
	{"key", "a/b.go", inGo("type c struct {\n\tA int `toml:\"spoolDir\" usage:\"Folder\"`\n}"), 7},
	{"meaning of a key", "a/b.go", inGo("type c struct {\n\tA int `toml:\"a\" usage:\"Where records are kept aside\"`\n}"), 7},
	{"alert", chart + "alerts.yaml", "- alert: A\n  summary: The spool is full.\n", 2},
	{"comment of a value", chart + "values.yaml", "# Whoever may read it.\na: 1\n", 1},
	{"value", chart + "values.yaml", "a:\n  spoolMaxBytes: 1\n", 2},
	{"dashboard", chart + "dashboards/overview.json", "{\n\"title\": \"Lemons\"}\n", 2},
	{"description of a value", chart + "values.schema.json", "{\"description\": \"by hand\"}\n", 1},
	{"refused value", chart + "templates/_checks.tpl", "{{/* it says */}}\n{{ fail \"values say it twice\" }}\n", 2},
	{"notes", chart + "templates/NOTES.txt", "Look at the nodes:\n", 1},
	{"make help", "Makefile", "\ndemo: ## Tell the story.\n", 2},
	{"script", "hack/x.sh", "echo \"the index says no\" >&2\n", 1},
}

// TestAPrivateWordInATextIsFound plants one in each kind of text, and none in an import, a generated file and a
// file of tests.
func TestAPrivateWordInATextIsFound(t *testing.T) {
	for _, c := range planted {
		if got := findings(t, c.file, c.text); !slices.Equal(got, []int{c.line}) {
			t.Errorf("%s: found in lines %v, want %d", c.name, got, c.line)
		}
	}
	for _, text := range []string{
		"// Code generated by x. DO NOT EDIT.\n\n" + inGo(`println("lemon")`), strings.ReplaceAll(inGo(`println("lemon")`), "example.com/lemon", "testing"),
	} {
		if got := findings(t, "a/b.go", text); got != nil {
			t.Errorf("found in lines %v of:\n%s", got, text)
		}
	}
}

// findings are the lines of a file with a private word.
func findings(t *testing.T, file, text string) (out []int) {
	t.Helper()
	places, err := textsOf(file, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		if len(privateIn(p)) > 0 {
			out = append(out, p.line)
		}
	}
	return out
}
