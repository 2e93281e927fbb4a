// Package reasons lists every reason that the programs give in statuses, Events, records, logs
// and labels of metrics: it reads the constants of the sources, whose comments have the meaning
// and the action, and writes the page docs/troubleshooting/reasons.md of them.
package reasons

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Reason is one constant.
type Reason struct {
	Value    string // as it is shown
	Constant string // its name in the source
	File     string // from the root of the repository
	Meaning  string // sentences
	Action   string // what the reader does, or "None."
}

// action begins the second part of a reason's comment.
const action = "Action:"

// Read finds the reasons below the root of the repository: constants of a type whose name ends
// in Reason, string constants whose name begins or ends with Reason, and those whose comment has
// an action. Tests and the folder tests are left out.
func Read(root string) ([]Reason, error) {
	var out []Reason
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		switch name = filepath.ToSlash(name); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name == "tests" || name != "." && strings.HasPrefix(name, ".") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("reading the reasons: %w", err)
		}
		out = append(out, of(name, parsed)...)
		return nil
	})
	return out, err
}

// of are the reasons of one file.
func of(file string, parsed *ast.File) (out []Reason) {
	for _, decl := range parsed.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
				continue
			}
			doc := cmp.Or(spec.Doc, group.Doc) // of a constant that is declared alone
			value, ok := text(spec.Values[0])
			if ok && (isReason(spec) || strings.Contains(doc.Text(), action)) {
				r := Reason{Value: value, Constant: spec.Names[0].Name, File: file}
				r.Meaning, r.Action = split(r.Constant, doc.Text())
				out = append(out, r)
			}
		}
	}
	return out
}

// text is the string of a literal, also within a conversion such as Reason("Lost").
func text(e ast.Expr) (string, bool) {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 {
		e = call.Args[0]
	}
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(lit.Value)
	return value, err == nil && value != ""
}

// others are constants with Reason in their name that are none: keys of metadata, a key of a
// ConfigMap and an address.
var others = []string{"MetadataStrategyReason", "ReasonKey", "metadataReason", "reasons"}

func isReason(spec *ast.ValueSpec) bool {
	if slices.Contains(others, spec.Names[0].Name) {
		return false
	}
	switch t := spec.Type.(type) {
	case *ast.Ident:
		return strings.HasSuffix(t.Name, "Reason")
	case *ast.SelectorExpr:
		return strings.HasSuffix(t.Sel.Name, "Reason")
	}
	name := spec.Names[0].Name
	return spec.Type == nil && (strings.HasPrefix(name, "Reason") || strings.HasPrefix(name, "reason") || strings.HasSuffix(name, "Reason"))
}

// split takes a comment "Name: meaning. Action: what to do." apart, or "Name means that ...".
func split(constant, comment string) (meaning, act string) {
	comment = strings.Join(strings.Fields(comment), " ")
	comment = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(comment, constant), ":"), " means that")
	meaning, act, _ = strings.Cut(comment, action)
	return sentence(meaning), sentence(act)
}

// sentence begins with a capital letter.
func sentence(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// component is the program, or the group of programs, whose sources a file belongs to.
func component(file string) string {
	folders := strings.Split(path.Dir(file), "/")
	switch folders[0] {
	case "api", "csp-plugins", "health-monitors", "repair-steps", "internal":
		return folders[min(1, len(folders)-1)]
	}
	return folders[0]
}

// Page is the page of all reasons, in alphabetical order.
func Page(all []Reason) string {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Reason) int {
		if c := strings.Compare(strings.ToLower(a.Value), strings.ToLower(b.Value)); c != 0 {
			return c
		}
		return strings.Compare(a.File+a.Constant, b.File+b.Constant)
	})
	var b strings.Builder
	b.WriteString(intro)
	last := ""
	for _, r := range all {
		if !strings.EqualFold(r.Value, last) {
			fmt.Fprintf(&b, "\n## %s\n\n", r.Value)
		}
		last = r.Value
		fmt.Fprintf(&b, "- `%s`: %s *Action:* %s\n", component(r.File), r.Meaning, r.Action)
	}
	return b.String()
}

const intro = `# Reasons

Written from the sources by ` + "`make generate`" + `. Every reason that a status, a Kubernetes Event, a stored record, a log line or a label of a metric shows is on this page, with the program that gives it, its meaning and what you do about it. Start with ` + "`nvsentinel why <node>`" + `, which prints the reasons of a node, and search this page for them.
`
