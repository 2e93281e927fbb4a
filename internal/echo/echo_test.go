package echo_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/echo"
)

func TestOnlyTheWrittenVersionIsAnEcho(t *testing.T) {
	var b echo.Book
	if b.Heard("n", "1") {
		t.Error("news of a thing nobody wrote was kept back")
	}
	b.Begin("n")
	if !b.Heard("n", "2") || b.Heard("other", "2") { // the first comes before End
		t.Error("while a write is under way, news of that thing alone waits for its end")
	}
	if b.End("n", "2") {
		t.Error("the write itself counts as news")
	}
	if b.Heard("n", "2") {
		t.Error("an echo came twice")
	}
	b.Begin("n")
	b.End("n", "3")
	if b.Heard("other", "3") || !b.Heard("n", "3") || b.Heard("n", "3") {
		t.Error("an echo is the version written of the thing, once")
	}
	b.Begin("n")
	b.End("n", "4")
	if b.Heard("n", "5") || b.Heard("n", "4") {
		t.Error("after other news of a thing something still counts as an echo")
	}
}

func TestForeignNewsDuringAWriteIsTold(t *testing.T) {
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
			var b echo.Book
			b.Begin("n")
			for _, v := range tt.heard {
				b.Heard("n", v)
			}
			if got := b.End("n", tt.version); got != tt.want {
				t.Errorf("news is %v, want %v", got, tt.want)
			}
			if tt.version == "" && b.Heard("n", "2") {
				t.Error("a write that failed leaves an echo")
			}
		})
	}
}
