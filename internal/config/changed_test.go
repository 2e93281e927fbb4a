package config

import (
	"slices"
	"testing"
)

func TestChangedNamesTheKeysOfTheFile(t *testing.T) {
	type inner struct{ A, B string }
	type outer struct {
		One   string   `toml:"one"`
		Two   inner    `toml:"second,omitempty"`
		Three []string `toml:"three"`
		Plain int
	}
	before := outer{"x", inner{"a", "b"}, []string{"l"}, 1}
	if got := Changed(before, outer{"x", inner{"a", "b"}, []string{"l"}, 1}); got != nil {
		t.Errorf("nothing differs: %v", got)
	}
	if got := Changed(before, outer{"x", inner{"a", "c"}, nil, 2}); !slices.Equal(got, []string{"second", "three", "Plain"}) {
		t.Errorf("changed %v", got)
	}
}
