package artifact_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/artifact"
)

func TestRead(t *testing.T) {
	live := parse(t, `{status: {url: "https://x/y", size: 12, none: null, list: [{name: a}, {name: b}], long: "`+strings.Repeat("ü", 3000)+`", huge: "`+strings.Repeat("x", 20000)+`"}}`)
	by := artifact.Definition{Digest: "sha256:d", InputDigest: "sha256:i"}
	before, err := artifact.Read(live, map[string]string{"url": ".status.url", "size": "{.status.size}", "long": ".status.long"}, by, nil, start)
	if err != nil {
		t.Fatal(err)
	}
	want := artifact.Output{ // echo https://x/y | sha256sum
		Name: "url", Digest: "sha256:7a80ef8533cb02b91406544dbaa8ec45e38e59ee79bc4195d4a410946652e0ee", Preview: "https://x/y\n", Value: `"https://x/y"`,
		DefinitionDigest: "sha256:d", InputDigest: "sha256:i", LastTransitionTime: start,
	}
	if diff := cmp.Diff(want, before[2]); diff != "" {
		t.Error(diff)
	}
	if n := len([]rune(before[0].Preview)); n != 1024 {
		t.Errorf("a preview of %d characters", n)
	}
	// What did not change keeps its time, and is by the newest definition all the same.
	live.Object["status"].(map[string]any)["size"] = int64(13)
	by.Digest = "sha256:e"
	after, err := artifact.Read(live, map[string]string{"url": ".status.url", "size": ".status.size"}, by, before, start.Add(time.Hour))
	if err != nil || after[1].LastTransitionTime != start || after[1].DefinitionDigest != "sha256:e" || after[0].LastTransitionTime != start.Add(time.Hour) || after[0].Value != "13" {
		t.Errorf("%+v, %v", after, err)
	}
	for path, problem := range map[string]string{
		".status.missing": "not found", ".status.list[*].name": "more than one", ".status.huge": "exceed 16384 bytes", ".status[": "parsing",
	} {
		if _, err := artifact.Read(live, map[string]string{"x": path}, by, nil, start); err == nil || !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), "output x at "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if null, err := artifact.Read(live, map[string]string{"x": ".status.none"}, by, nil, start); err != nil || null[0].Value != "null" {
		t.Errorf("null is %+v, %v", null, err)
	}
}
