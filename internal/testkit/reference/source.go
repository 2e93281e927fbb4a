package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const module = "github.com/nvidia/nvsentinel/"

// source has the comments of the fields of the structs that it was asked about.
type source struct {
	root     string
	comments map[string]map[string]string // package folder -> "Type.Field"
}

// comment is the text above a field; a field without one has that of the field
// above it in the same group, if it names both.
func (s *source) comment(t testing.TB, owner reflect.Type, field string) string {
	dir, ours := strings.CutPrefix(owner.PkgPath(), module)
	if !ours {
		t.Fatalf("%s is of no package of the repository", owner)
	}
	if s.comments[dir] == nil {
		if s.comments == nil {
			s.comments = map[string]map[string]string{}
		}
		s.comments[dir] = read(t, filepath.Join(s.root, dir))
	}
	return s.comments[dir][owner.Name()+"."+field]
}

func read(t testing.TB, dir string) map[string]string {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	out := map[string]string{}
	for _, name := range files {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				fields(set, spec.Name.Name, st, out)
			}
			return true
		})
	}
	return out
}

func fields(set *token.FileSet, owner string, st *ast.StructType, out map[string]string) {
	above, line := "", 0
	for _, f := range st.Fields.List {
		switch {
		case f.Doc != nil:
			above = strings.Join(strings.Fields(f.Doc.Text()), " ")
		case set.Position(f.Pos()).Line != line+1:
			above = "" // a group of its own
		}
		line = set.Position(f.End()).Line
		for _, name := range f.Names {
			if f.Doc != nil || strings.Contains(above, name.Name) {
				out[owner+"."+name.Name] = above
			}
		}
	}
}
