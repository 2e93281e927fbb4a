package testrun_test

import (
	"slices"
	"testing"

	"github.com/nvidia/nvsentinel/tests/testrun"
)

// sample is a repository of four services' packages and three suites.
var sample = []testrun.Package{
	{Dir: "./internal/a", Links: []string{"./internal/a"}},
	{Dir: "./service", Links: []string{"./service", "./internal/a", "./service/decision"}},
	{Dir: "./service/decision", Links: []string{"./service/decision"}},
	{Dir: "./other", Links: []string{"./other"}},
	{Dir: "./tests/chart", Links: []string{"./tests/chart"}, Reads: []string{"distros", "docs"}},
	{Dir: "./tests/prose", Links: []string{"./tests/prose"}, Reads: []string{"docs"}},
	{Dir: "./tests/repository", Links: []string{"./tests/repository"}},
}

func TestAffected(t *testing.T) {
	for name, tc := range map[string]struct {
		changed []string
		want    []string
	}{
		"nothing":            {nil, []string{"./tests/repository"}},
		"leaf":               {[]string{"other/main.go"}, []string{"./other", "./tests/repository"}},
		"shared package":     {[]string{"internal/a/a.go"}, []string{"./internal/a", "./service", "./tests/repository"}},
		"test data":          {[]string{"service/decision/testdata/x/y.txt"}, []string{"./service", "./service/decision", "./tests/repository"}},
		"folder without one": {[]string{"service/README.md"}, []string{"./service", "./tests/repository"}},
		"chart":              {[]string{"distros/helm/nvsentinel/values.yaml"}, []string{"./tests/chart", "./tests/repository"}},
		"page":               {[]string{"docs/index.md", "README.md"}, []string{"./tests/chart", "./tests/prose", "./tests/repository"}},
		"workflow":           {[]string{".github/workflows/presubmit.yml"}, []string{"./tests/repository"}},
		"tools":              {[]string{"hack/tools/go.mod"}, []string{"./tests/repository"}},
		"modules": {[]string{"api/go.mod"}, []string{
			"./internal/a", "./other", "./service", "./service/decision", "./tests/chart", "./tests/prose", "./tests/repository",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := testrun.Affected(sample, tc.changed); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestShard: the shards together are everything once, and each has its part of the longest.
func TestShard(t *testing.T) {
	packages := append([]string{"./a", "./b", "./c"}, testrun.Longest...)
	var all []string
	for _, shard := range []string{"1/3", "2/3", "3/3"} {
		part, err := testrun.Shard(packages, shard)
		if err != nil {
			t.Fatal(err)
		}
		long := 0
		for _, dir := range part {
			if slices.Contains(testrun.Longest, dir) {
				long++
			}
		}
		if least := len(testrun.Longest) / 3; long < least || long > least+1 {
			t.Errorf("%s has %d of the longest packages, want %d or one more", shard, long, least)
		}
		all = append(all, part...)
	}
	slices.Sort(all)
	if want := slices.Sorted(slices.Values(packages)); !slices.Equal(all, want) {
		t.Errorf("together %v, want %v", all, want)
	}
	if part, err := testrun.Shard(packages, ""); err != nil || !slices.Equal(part, packages) {
		t.Errorf("without a shard: %v, %v", part, err)
	}
	for _, bad := range []string{"1", "0/3", "4/3", "a/b", "1/3/5"} {
		if _, err := testrun.Shard(packages, bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
