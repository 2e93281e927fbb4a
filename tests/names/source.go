package names

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// apart are folders without sources of the product. gen makes code, and fleet is a program of tests.
var apart = []string{"bin", "hack", "tests", "testdata", "examples", "docs", "distros", "gen", "fleet"}

// sourceNames are those that sources of Go and of protobuf give.
func sourceNames(root string, all list) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (slices.Contains(apart, entry.Name()) || strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case path.Ext(file) == ".proto":
			return protoNames(file, all)
		case path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && entry.Name() != "former.go": // what is read, and written no more
			return goNames(file, filepath.ToSlash(filepath.Dir(name)), all)
		}
		return nil
	})
}

// call is a service or a method of it.
var call = regexp.MustCompile(`(?m)^(package|service| *rpc) +([\w.]+)`)

func protoNames(file string, all list) error {
	text, err := os.ReadFile(file)
	var in, service string
	for _, m := range call.FindAllStringSubmatch(string(text), -1) {
		switch strings.TrimSpace(m[1]) {
		case "package":
			in = m[2]
		case "service":
			service = in + "." + m[2]
		default:
			all.add("gRPC method", service+"/"+m[2])
		}
	}
	return err
}

func goNames(file, folder string, all list) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) || slices.ContainsFunc(parsed.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` }) {
		return err
	}
	s := source{all: all, folder: folder}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			s.literal(n)
		case *ast.ValueSpec:
			s.constant(n)
		case *ast.KeyValueExpr:
			s.entry(n)
		case *ast.Field:
			s.field(n)
		case *ast.CallExpr:
			s.call(n)
		}
		return true
	})
	return nil
}

// source is a file that is read.
type source struct {
	all    list
	folder string
}

// text is the value of a string literal, empty if the expression is none.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	value, _ := strconv.Unquote(lit.Value)
	return value
}

var (
	// key is one of a label, an annotation, a taint or a finalizer, or the begin of several.
	key = regexp.MustCompile(`^(?:(?:[a-z]+\.)*(?:dgxc|nvsentinel|k8saas)\.nvidia\.com/[\w./-]*|quarantine(?:HealthEvent|dNode)\w*|latestFaultRemediationState)$`)
	// version ends a group of the API.
	version = regexp.MustCompile(`/v[0-9]\w*$`)
	camel   = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	kebab   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	capital = regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`)
	// condition, and check, are the names of constants that are one; watch is the name of a check.
	condition = regexp.MustCompile(`^Condition[A-Z]|^EventDelivery$`)
	watch     = regexp.MustCompile(`^Gpu[A-Z]\w+Watch$`)
	check     = regexp.MustCompile(`^Check([A-Z]|$)|Check$`)
	// shown are the packages whose enumerations are seen: in objects, in records, or printed by the command line.
	shown = regexp.MustCompile(`^(api|data-models|cli/(timeline|removal))(/|$)`)
)

func (s source) literal(lit *ast.BasicLit) {
	switch value := text(lit); {
	case key.MatchString(value) && !version.MatchString(value):
		s.all.add("key of a label or annotation", value)
	case watch.MatchString(value):
		s.all.add("check", value)
	}
}

// constant lists conditions, checks, and values of enumerations that are seen.
func (s source) constant(spec *ast.ValueSpec) {
	if len(spec.Names) != 1 || len(spec.Values) != 1 || text(spec.Values[0]) == "" {
		return
	}
	name, value := spec.Names[0].Name, text(spec.Values[0])
	of, _ := spec.Type.(*ast.Ident)
	switch {
	case of != nil && of.Name == "Reason": // tests/reasons reads them
	case of != nil && of.Name != "string" && shown.MatchString(s.folder):
		s.all.add("value", value)
	case condition.MatchString(name) && camel.MatchString(value):
		s.all.add("condition", value)
	case check.MatchString(name) && camel.MatchString(value):
		s.all.add("check", value)
	}
}

// entry lists commands, and reasons of Events that are no constants.
func (s source) entry(e *ast.KeyValueExpr) {
	name, _ := e.Key.(*ast.Ident)
	value := text(e.Value)
	switch {
	case name == nil || value == "":
	case name.Name == "Use" && strings.HasPrefix(s.folder, "cli/"):
		command, _, _ := strings.Cut(value, " ")
		s.all.add("command", cmp.Or(strings.TrimPrefix("nvsentinel "+command, "nvsentinel nvsentinel"), command))
	case name.Name == "Reason" && camel.MatchString(value):
		s.all.add("reason", value)
	}
}

// field lists variables, and what the command line prints as JSON.
func (s source) field(f *ast.Field) {
	if f.Tag == nil {
		return
	}
	tag := reflect.StructTag(text(f.Tag))
	for variable := range strings.SplitSeq(tag.Get("env"), ",") {
		if variable != "" {
			s.all.add("variable", variable)
		}
	}
	if name, _, _ := strings.Cut(tag.Get("json"), ","); name != "" && name != "-" && strings.HasPrefix(s.folder, "cli/") {
		s.all.add("field of -o json", name)
	}
}

// call lists variables that a program reads itself, and flags that no configuration has.
func (s source) call(c *ast.CallExpr) {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || len(c.Args) == 0 {
		return
	}
	switch usage := text(c.Args[len(c.Args)-1]); {
	case sel.Sel.Name == "Getenv" || sel.Sel.Name == "LookupEnv":
		if name := text(c.Args[0]); capital.MatchString(name) {
			s.all.add("variable", name)
		}
	case len(c.Args) < 3 || !strings.Contains(usage, " ") || !flags.MatchString(sel.Sel.Name):
	default:
		for _, arg := range c.Args[:2] {
			if name := text(arg); kebab.MatchString(name) {
				s.all.add("flag", path.Base(strings.Replace(s.folder, "cli/internal/command", "nvsentinel", 1))+" --"+name)
				return
			}
		}
	}
}

// flags are the methods of a flag set.
var flags = regexp.MustCompile(`^(String|Bool|Int|Uint|Float64|Duration|StringSlice|StringArray|Text|Func)(Var)?P?$|^Var$`)
