package consumer_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/store-client/consumer"
)

func TestOnlyTheWrittenVersionIsIgnored(t *testing.T) {
	var f consumer.OwnWrites
	if f.Ignores("n", "1") {
		t.Error("news of a thing nobody wrote was kept back")
	}
	f.Begin("n")
	if !f.Ignores("n", "2") || f.Ignores("other", "2") { // the first comes before End
		t.Error("while a write is under way, news of that thing alone waits for its end")
	}
	if f.End("n", "2") {
		t.Error("the write itself counts as news")
	}
	if f.Ignores("n", "2") {
		t.Error("an own write is ignored twice")
	}
	f.Begin("n")
	f.End("n", "3")
	if f.Ignores("other", "3") || !f.Ignores("n", "3") || f.Ignores("n", "3") {
		t.Error("what is ignored is the version written of the thing, once")
	}
	f.Begin("n")
	f.End("n", "4")
	if f.Ignores("n", "5") || f.Ignores("n", "4") {
		t.Error("after other news of a thing something is still ignored")
	}
}

func TestForeignChangeDuringAWriteIsDelivered(t *testing.T) {
	for name, tt := range map[string]struct {
		heard   []string
		version string
		want    bool
	}{
		"nothing":                {nil, "2", false},
		"itself, twice":          {[]string{"2", "2"}, "2", false},
		"another after it":       {[]string{"2", "3"}, "2", true},
		"another before it":      {[]string{"1"}, "2", true},
		"a write that failed":    {[]string{"2"}, "", true},
		"a failure, and no news": {nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var f consumer.OwnWrites
			f.Begin("n")
			for _, v := range tt.heard {
				f.Ignores("n", v)
			}
			if got := f.End("n", tt.version); got != tt.want {
				t.Errorf("news is %v, want %v", got, tt.want)
			}
			if tt.version == "" && f.Ignores("n", "2") {
				t.Error("after a write that failed something is ignored")
			}
		})
	}
}
