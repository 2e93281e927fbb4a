package config_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

type word string

// mode validates itself.
type mode string

func (m mode) Validate() error {
	if m == "old" {
		return errors.New("old is now called new")
	}
	return nil
}

type nested struct {
	Enabled bool          `toml:"enabled"`
	Wait    time.Duration `toml:"wait" bounds:"above 0s" flag:"wait"`
}

// validated has a Validate of its own.
type validated struct {
	N int `toml:"n" bounds:"at least 1"`
}

func (validated) Validate() error { return nil }

type bounded struct {
	Interval  time.Duration `toml:"interval" bounds:"at least 1s" flag:"interval"`
	Size      int           `toml:"size" bounds:"1 to 1024 bytes"`
	Port      int           `toml:"port" bounds:"0, or at least 1000"`
	Most      int64         `toml:"most" bounds:"at most 32"`
	Name      string        `toml:"name" bounds:"not empty" flag:"name"`
	Word      word          `toml:"word" bounds:"kmsg, journal"`
	Mode      mode          `toml:"mode" bounds:"new, newer" flag:"mode"`
	Other     int           `toml:"other" bounds:"at least size" enforced:"Validate"`
	Window    time.Duration `toml:"window" bounds:"above 0s, at most 720h"`
	Rate      float64       `toml:"rate" bounds:"0 to 100"`
	Percent   *int          `toml:"percent" bounds:"0 to 100"`
	Nested    nested        `toml:"nested" prefix:"nested-"`
	Validated validated     `toml:"judge"`
}

func TestCheckBounds(t *testing.T) {
	good := bounded{Interval: time.Second, Size: 1, Most: 32, Name: "n", Word: "journal", Window: time.Hour, Nested: nested{Enabled: true, Wait: 1}}
	for want, spoil := range map[string]func(*bounded){
		"<nil>": func(*bounded) {},
		"interval (--interval) is 999ms: must be at least 1s":    func(b *bounded) { b.Interval = 999 * time.Millisecond },
		"size is 0: must be 1 to 1024 bytes":                     func(b *bounded) { b.Size = 0 },
		"size is 1025: must be 1 to 1024 bytes":                  func(b *bounded) { b.Size = 1025 },
		"port is 999: must be 0, or at least 1000":               func(b *bounded) { b.Port = 999 },
		"most is 33: must be at most 32":                         func(b *bounded) { b.Most = 33 },
		"name (--name) is empty":                                 func(b *bounded) { b.Name = "" },
		`word is "file": must be one of kmsg, journal`:           func(b *bounded) { b.Word = "file" },
		"mode (--mode): old is now called new":                   func(b *bounded) { b.Mode = "old" },
		"nested.wait (--nested-wait) is 0s: must be above 0s":    func(b *bounded) { b.Nested.Wait = 0 },
		"window is 0s: must be above 0s, at most 720h":           func(b *bounded) { b.Window = 0 },
		"window is 721h0m0s: must be above 0s, at most 720h":     func(b *bounded) { b.Window = 721 * time.Hour },
		"rate is 100.5: must be 0 to 100":                        func(b *bounded) { b.Rate = 100.5 },
		"rate is NaN: must be 0 to 100":                          func(b *bounded) { b.Rate = math.NaN() },
		"percent is 101: must be 0 to 100":                       func(b *bounded) { b.Percent = new(101) },
		"most is 33: must be at most 32\nname (--name) is empty": func(b *bounded) { b.Most, b.Name = 33, "" },
	} {
		b := good
		spoil(&b)
		if diff := cmp.Diff(want, fmt.Sprint(config.CheckBounds(b))); diff != "" {
			t.Error(diff)
		}
	}
	good.Percent = new(100)
	good.Nested, good.Port = nested{}, 1000
	if err := config.CheckBounds(good); err != nil {
		t.Errorf("what is off, and a value at its bound: %v", err)
	}
}

// TestBoundsThatCannotBeReadAreRefused: a misspelt bound would bound nothing.
func TestBoundsThatCannotBeReadAreRefused(t *testing.T) {
	type (
		misspelt struct {
			Key int `toml:"key" bounds:"at leats 1"`
		}
		unit struct {
			Key int `toml:"key" bounds:"at least 1s"`
		}
		unitless struct {
			Key time.Duration `toml:"key" bounds:"at least 1"`
		}
		otherKey struct {
			Key int `toml:"key" bounds:"at least other"`
		}
		words struct {
			Key int `toml:"key" bounds:"one, two"`
		}
		oneWord struct {
			Key string `toml:"key" bounds:"one"`
		}
		list struct {
			Key []string `toml:"key" bounds:"at most 32"`
		}
		pointer struct {
			Key *int `toml:"key" bounds:"at leats 1"`
		}
		second struct {
			Key int `toml:"key" bounds:"at least 1, at moost 2"`
		}
		exponent struct {
			Key float64 `toml:"key" bounds:"0 to 1e9"`
		}
		afterZero struct {
			Key int `toml:"key" bounds:"0, or 5"`
		}
		switched struct {
			Key bool `toml:"key" bounds:"at least 1"`
		}
		needless struct {
			Key int `toml:"key" bounds:"at least 1" enforced:"Validate"`
		}
	)
	for _, settings := range []any{
		misspelt{}, unit{}, unitless{}, otherKey{}, words{}, oneWord{}, list{}, pointer{}, second{}, exponent{}, afterZero{}, switched{}, needless{},
	} {
		typ := reflect.TypeOf(settings)
		bounds := typ.Field(0).Tag.Get("bounds")
		for program, got := range map[string]string{
			"key: program error":                 fmt.Sprint(config.CheckBounds(settings)),
			typ.String() + ".Key: program error": fmt.Sprint(config.CheckTags(typ)),
		} {
			if !strings.Contains(got, program) || !strings.Contains(got, fmt.Sprintf("%q", bounds)) {
				t.Errorf("%s: %s", typ, got)
			}
		}
	}
	if err := errors.Join(config.CheckTags(reflect.TypeFor[bounded]()), config.CheckTags(reflect.TypeFor[map[string][]*bounded]())); err != nil {
		t.Error(err)
	}
	if err := config.CheckTags(reflect.TypeFor[map[string][]*misspelt]()); err == nil {
		t.Error("a type within a map of lists is not checked")
	}
}
