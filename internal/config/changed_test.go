package config

import (
	"slices"
	"testing"
)

// Part is embedded.
type Part struct {
	Host string `toml:"host"`
	Live string `toml:"live" live:"true"`
}

func TestNeedsRestartNamesTheKeysOfTheFile(t *testing.T) {
	type inner struct{ A, B string }
	type outer struct {
		Part

		One   string   `toml:"one"`
		Two   inner    `toml:"second,omitempty"`
		Three []string `toml:"three"`
		Four  []string `toml:"four" live:"true"`
		Plain int
	}
	before := outer{Part{"h", "l"}, "x", inner{"a", "b"}, []string{"l"}, nil, 1}
	if got := NeedsRestart(before, outer{Part{"h", "m"}, "x", inner{"a", "b"}, []string{"l"}, []string{"m"}, 1}); got != nil {
		t.Errorf("nothing differs that needs a restart: %v", got)
	}
	if got := NeedsRestart(before, outer{Part{"i", "l"}, "x", inner{"a", "c"}, nil, nil, 2}); !slices.Equal(got, []string{"host", "second", "three", "Plain"}) {
		t.Errorf("changed %v", got)
	}
}
