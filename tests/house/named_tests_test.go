package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// proofs are pages whose tables name tests in their last column, as `package` TestName,
// TestOther/case.
var proofs = []string{"docs/security.md", "docs/limits.md"}

var (
	inPackage = regexp.MustCompile("`([a-z][\\w./-]*)`([^`]*)")
	namedTest = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*|\bappend[A-Z]\w*`)
)

// TestNamedTestsExist: a page that names a test as proof names one that is there.
func TestNamedTestsExist(t *testing.T) {
	for _, page := range proofs {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for number, line := range strings.Split(string(text), "\n") {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			if !strings.HasPrefix(line, "|") || len(cells) < 4 {
				continue
			}
			for _, m := range inPackage.FindAllStringSubmatch(cells[len(cells)-1], -1) {
				for _, name := range namedTest.FindAllString(m[2], -1) {
					seen++
					if !declares(t, filepath.Join("..", "..", m[1]), name) {
						t.Errorf("%s:%d: package %s has no %s", page, number+1, m[1], name)
					}
				}
			}
		}
		if seen < 10 {
			t.Errorf("%s names %d tests", page, seen)
		}
	}
}

// declares says whether a Go file of a folder declares a function.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(") {
			return true
		}
	}
	return false
}
