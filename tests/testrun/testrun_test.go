package testrun_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/tests/testrun"
)

// sampleOutput is the output of go test -json for three packages.
const sampleOutput = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"run","Package":"a","Test":"TestX/sub"}
{"Action":"output","Package":"a","Test":"TestX/sub","Output":"=== RUN   TestX/sub\n"}
{"Action":"output","Package":"a","Test":"TestX/sub","Output":"    x_test.go:7: not as wanted\n"}
{"Action":"fail","Package":"a","Test":"TestX/sub","Elapsed":0.1}
{"Action":"fail","Package":"a","Test":"TestX","Elapsed":0.1}
{"Action":"run","Package":"a","Test":"TestY"}
{"Action":"pass","Package":"a","Test":"TestY","Elapsed":0.1}
{"Action":"fail","Package":"a","Elapsed":0.2}
{"Action":"start","Package":"b"}
{"Action":"run","Package":"b","Test":"TestLong"}
{"Action":"output","Package":"b","Test":"TestLong","Output":"    b_test.go:9: long, make test-all runs it: TestShort covers it\n"}
{"Action":"skip","Package":"b","Test":"TestLong","Elapsed":0}
{"Action":"run","Package":"b","Test":"TestLong2"}
{"Action":"output","Package":"b","Test":"TestLong2","Output":"    b_test.go:9: long, make test-all runs it: so does another\n"}
{"Action":"skip","Package":"b","Test":"TestLong2","Elapsed":0}
{"Action":"run","Package":"b","Test":"TestServer"}
{"Action":"output","Package":"b","Test":"TestServer","Output":"    testing.go:56: no MongoDB server: the package index is out of reach\n"}
{"Action":"skip","Package":"b","Test":"TestServer","Elapsed":0}
{"Action":"run","Package":"b","Test":"TestMute"}
{"Action":"skip","Package":"b","Test":"TestMute","Elapsed":0}
{"Action":"pass","Package":"b","Elapsed":0.2}
not JSON
{"Action":"start","Package":"c"}
{"Action":"output","Package":"c","Output":"panic: in TestMain\n"}
{"Action":"fail","Package":"c","Elapsed":0.2}
`

func TestRead(t *testing.T) {
	got, err := testrun.Read(strings.NewReader(sampleOutput))
	if err != nil {
		t.Fatal(err)
	}
	want := testrun.Result{
		Passed: 1, Failed: 3,
		Failures: []testrun.Failure{
			{Package: "a", Tests: []string{"TestX/sub"}, First: "=== RUN   TestX/sub\n    x_test.go:7: not as wanted"},
			{Package: "c", First: "panic: in TestMain"},
		},
		Skips: []testrun.Skip{
			{Reason: "long, make test-all runs it", Tests: 2},
			{Reason: "no MongoDB server: the package index is out of reach", Tests: 1},
			{Reason: "no reason given", Tests: 1},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func failures(packages ...string) []testrun.Failure {
	var list []testrun.Failure
	for _, p := range packages {
		list = append(list, testrun.Failure{Package: p})
	}
	return list
}

func TestEvaluate(t *testing.T) {
	for name, test := range map[string]struct {
		first, again []testrun.Failure
		earlier      []string
		flaky        int
		problem      string
	}{
		"all passed":             {nil, nil, nil, 0, ""},
		"one flaky":              {failures("a"), nil, []string{"b"}, 1, ""},
		"three flaky":            {failures("a", "b", "c"), nil, nil, 3, ""},
		"four failed":            {failures("a", "b", "c", "d"), nil, nil, 0, "4 packages failed"},
		"failed again":           {failures("a"), failures("a"), nil, 0, "a failed, and failed again alone"},
		"one again, one flaky":   {failures("a", "b"), failures("b"), nil, 1, "b failed, and failed again alone"},
		"flaky for a second run": {failures("a"), nil, []string{"a"}, 1, "a is flaky for the second time"},
		"mended since":           {nil, nil, []string{"a"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := testrun.Evaluate(test.first, test.again, test.earlier)
			if len(v.Flaky) != test.flaky {
				t.Errorf("flaky: %v, want %d", v.Flaky, test.flaky)
			}
			problems := strings.Join(v.Problems, "\n")
			if v.Passed() != (test.problem == "") || !strings.Contains(problems, test.problem) {
				t.Errorf("passed %v, problems %q; want %q", v.Passed(), problems, test.problem)
			}
			if again := testrun.ShouldRetry(test.first); again != (len(test.first) > 0 && len(test.first) <= testrun.MaxFlaky) {
				t.Errorf("worth repeating: %v", again)
			}
		})
	}
}

func TestTheFileOfFlakyTests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bin", "flaky.txt")
	if got, err := testrun.Earlier(file); err != nil || got != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
	for i, f := range []testrun.Failure{
		{Package: "example.com/a", Tests: []string{"TestX", "TestY"}, First: "line one\nFLAKY is no header here"},
		{Package: "example.com/b", First: "panic"},
	} {
		if err := testrun.Record(file, []testrun.Failure{f}); err != nil {
			t.Fatal(err)
		}
		got, err := testrun.Earlier(file)
		if want := []string{"example.com/a", "example.com/b"}[:i+1]; err != nil || !slices.Equal(got, want) {
			t.Errorf("read back %v, %v; want %v", got, err, want)
		}
	}
	text, err := os.ReadFile(file)
	want := "FLAKY example.com/a TestX, TestY\n    line one\n    FLAKY is no header here\nFLAKY example.com/b the package itself\n    panic\n"
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestLongTests(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		want   map[string][]string
		err    string
	}{
		"calls it":       {"func TestA(t *testing.T) {\n\ttestkit.Long(t, \"why\")\n}", map[string][]string{"./room": {"TestA"}}, ""},
		"in a subtest":   {"func TestB(t *testing.T) {\n\tt.Run(\"x\", func(t *testing.T) { testkit.Long(t, \"why\") })\n}", map[string][]string{"./room": {"TestB"}}, ""},
		"does not":       {"func TestC(t *testing.T) { other.Long(t, \"why\"); Long() }", nil, "file not found"},
		"through others": {"func stage(t *testing.T) { testkit.Long(t, \"why\") }", nil, "stage calls testkit.Long and is no test"},
		"no Go":          {"func (", nil, "room_test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "room"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "room", "room_test.go"), []byte("package room\n\n"+test.source+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := testrun.LongTests(root)
			if diff := cmp.Diff(test.want, got); test.err == "" && (err != nil || diff != "") {
				t.Errorf("%v\n%s", err, diff)
			}
			if test.err != "" && !strings.Contains(fmt.Sprint(err), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
	if got := testrun.Pattern(map[string][]string{"./a": {"TestB", "TestA"}, "./b": {"TestA"}}); got != "^(TestA|TestB)$" {
		t.Errorf("pattern %s", got)
	}
}
