package repository

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// named is what the last cell of a row names: a folder of the repository, a test with the
	// scripts of it, a story, or a case of the stores' conformance suite.
	named  = regexp.MustCompile("`([\\w./-]+)`|\\b((?:Test|Fuzz)[A-Z]\\w*)((?:/[\\w.]+(?:, [a-z0-9_][\\w.]*)*)?)|\\b(\\d\\d_\\w+)|conformance suite, \"([^\"]+)\"")
	begins = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
)

const (
	// noTest begins the last cell of a row that states why there is no test.
	noTest = "none: "
	// proven heads the table of docs/reference/security-tests.md, which has so many rows at least.
	proven, provenRows = "## What cannot be done, and the test that proves it", 93
)

// tested are the tests and the scripts of the repository, by folder, and the sources of the
// conformance suite.
type tested struct {
	tests, scripts map[string][]string
	suite          string
}

// TestNamedTestsExist: every test that the last column of a table names, if it is headed test,
// is in the folder that is named before it, or below, and so is every script. Each row names
// one, or states why there is none.
func TestNamedTestsExist(t *testing.T) {
	files, have := texts(t), tested{map[string][]string{}, scripts(t), ""}
	for file, text := range files {
		if path.Dir(file) == "store-client/storetest" {
			have.suite += text
		}
		if strings.HasSuffix(file, "_test.go") {
			have.add(file, text)
		}
	}
	for _, page := range []string{"docs/reference/failure-isolation.md", "docs/reference/limits.md", "docs/reference/security-tests.md", "docs/reference/waits.md"} {
		found, proofs := 0, false
		for line := range strings.SplitSeq(files[page], "\n") {
			cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
			last := strings.TrimSpace(cells[len(cells)-1])
			proofs = len(cells) > 1 && (proofs || last == "test")
			if !proofs || len(cells) < 5 || last == "test" || strings.Trim(last, "-") == "" && last != "-" {
				continue
			}
			n, missing := have.check(last)
			if found += n; n == 0 && !strings.HasPrefix(last, noTest) {
				missing = append(missing, "it names no test, and does not say why by "+noTest)
			}
			for _, m := range missing {
				t.Errorf("%s, row %q: %s", page, strings.TrimSpace(cells[1]), m)
			}
		}
		if found < 15 {
			t.Errorf("%s names %d tests: too few to mean anything", page, found)
		}
	}
}

// TestForbiddenActions: the table loses no row unnoticed, lists each action once, and
// SECURITY.md links to it. That each row has a test is checked above.
func TestForbiddenActions(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "docs/reference/security-tests.md"), "\n"+proven+"\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	rows := map[string]bool{}
	for _, line := range strings.Split(section, "\n| ")[min(1, strings.Count(section, "\n| ")):] {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || slices.Contains(cells, "") {
			t.Errorf("not a row of four cells: %q", line)
			continue
		}
		if rows[cells[0]+cells[1]] {
			t.Errorf("twice: %s cannot %s", cells[0], cells[1])
		}
		rows[cells[0]+cells[1]] = true
	}
	if n := len(rows) - 1; n < provenRows { // without the heads of the columns
		t.Errorf("the table has %d rows, fewer than %d", n, provenRows)
	}
	if !strings.Contains(read(t, "SECURITY.md"), "(docs/reference/security-tests.md#what-cannot-be-done-and-the-test-that-proves-it)") {
		t.Error("SECURITY.md does not lead to the table")
	}
}

func (h tested) add(file, text string) {
	for _, m := range begins.FindAllStringSubmatch(text, -1) {
		h.tests[path.Dir(file)] = append(h.tests[path.Dir(file)], m[1])
	}
}

// scripts are the names of the files below testdata, by the folder that testdata is in.
func scripts(t *testing.T) map[string][]string {
	t.Helper()
	root, out := filepath.Join("..", ".."), map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
		if entry.IsDir() && (name == "bin" || file != root && strings.HasPrefix(entry.Name(), ".")) {
			return filepath.SkipDir
		}
		if folder, _, in := strings.Cut(name, "/testdata/"); in && !entry.IsDir() {
			out[folder] = append(out[folder], entry.Name(), strings.TrimSuffix(entry.Name(), ".txt"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// check counts the tests that a cell names, and returns what does not exist.
func (h tested) check(cell string) (found int, missing []string) {
	place := ""
	for _, m := range named.FindAllStringSubmatch(cell, -1) {
		switch folder, test, wanted, story, suite := m[1], m[2], m[3], m[4], m[5]; {
		case folder != "":
			if place = strings.TrimPrefix(folder, ".../"); strings.Contains(place, "/") && len(below(h.tests, place)) == 0 {
				missing = append(missing, "no folder "+folder+" has tests")
			}
		case suite != "":
			if found++; !strings.Contains(h.suite, `{"`+suite+`", `) {
				missing = append(missing, "the conformance suite has no case "+suite)
			}
		case story != "":
			found++
			missing = append(missing, without(below(h.scripts, "tests/stories"), story)...)
		case !slices.Contains(below(h.tests, place), test):
			missing = append(missing, test+" is not in the folder "+place)
		default:
			found++
			names := strings.FieldsFunc(wanted, func(r rune) bool { return r == '/' || r == ',' || r == ' ' })
			missing = append(missing, without(below(h.scripts, place), names...)...)
		}
	}
	return found, missing
}

// below is what the folders have whose path ends in place, and those below them.
func below(all map[string][]string, place string) (out []string) {
	for folder, names := range all {
		if strings.Contains("/"+folder+"/", "/"+place+"/") {
			out = append(out, names...)
		}
	}
	return out
}

// without are the scripts that are not there.
func without(there []string, wanted ...string) (missing []string) {
	for _, script := range wanted {
		if !slices.Contains(there, script) {
			missing = append(missing, "there is no script "+script)
		}
	}
	return missing
}

func TestTestNamesOfACell(t *testing.T) {
	have := tested{map[string][]string{}, map[string][]string{"a/b": {"life.txt", "life"}}, `{"read: all", readAll},`}
	have.add("a/b/x_test.go", "func TestX(t *testing.T) {\nfunc FuzzY(")
	have.add("a/b/c/z_test.go", "func TestZ(")
	for cell, want := range map[string]int{
		" `a/b` TestX ": 1, " `b` TestX, FuzzY, TestZ ": 3, " `.../b` TestX/life, life.txt ": 1, " `a/b/c` TestX ": -1, " `a/b` TestNone ": -1,
		" `no/where` ": -1, " `a/b` TestX/none ": -1, " gRPC's own ": 0, " - ": 0, " `a/b` (none goes there) ": 0, " 99_story ": -1,
		` conformance suite, "read: all" `: 1, ` conformance suite, "read: none" `: -1,
	} {
		if found, missing := have.check(cell); want >= 0 && (found != want || len(missing) > 0) || want < 0 && len(missing) == 0 {
			t.Errorf("%q: %d tests, missing %q", cell, found, missing)
		}
	}
}
