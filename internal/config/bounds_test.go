package config_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
)

type word string

// mode judges itself.
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

// judge has a Validate of its own.
type judge struct {
	N int `toml:"n" bounds:"at least 1"`
}

func (judge) Validate() error { return nil }

type bounded struct {
	Interval time.Duration `toml:"interval" bounds:"at least 1s" flag:"interval"`
	Size     int           `toml:"size" bounds:"1 to 1024 bytes"`
	Port     int           `toml:"port" bounds:"0, or at least 1000"`
	Most     int64         `toml:"most" bounds:"at most 32"`
	Name     string        `toml:"name" bounds:"not empty" flag:"name"`
	Word     word          `toml:"word" bounds:"kmsg, journal"`
	Mode     mode          `toml:"mode" bounds:"new, newer" flag:"mode"`
	Other    int           `toml:"other" bounds:"at least size"`
	Nested   nested        `toml:"nested" prefix:"nested-"`
	Judge    judge         `toml:"judge"`
}

func TestCheckBounds(t *testing.T) {
	good := bounded{Interval: time.Second, Size: 1, Most: 32, Name: "n", Word: "journal", Nested: nested{Enabled: true, Wait: 1}}
	for want, spoil := range map[string]func(*bounded){
		"<nil>": func(*bounded) {},
		"interval (--interval) is 999ms; it has to be at least 1s":    func(b *bounded) { b.Interval = 999 * time.Millisecond },
		"size is 0; it has to be 1 to 1024 bytes":                     func(b *bounded) { b.Size = 0 },
		"size is 1025; it has to be 1 to 1024 bytes":                  func(b *bounded) { b.Size = 1025 },
		"port is 999; it has to be 0, or at least 1000":               func(b *bounded) { b.Port = 999 },
		"most is 33; it has to be at most 32":                         func(b *bounded) { b.Most = 33 },
		"name (--name) is empty":                                      func(b *bounded) { b.Name = "" },
		`word is "file"; it has to be one of kmsg, journal`:           func(b *bounded) { b.Word = "file" },
		"mode (--mode): old is now called new":                        func(b *bounded) { b.Mode = "old" },
		"nested.wait (--nested-wait) is 0s; it has to be above 0s":    func(b *bounded) { b.Nested.Wait = 0 },
		"most is 33; it has to be at most 32\nname (--name) is empty": func(b *bounded) { b.Most, b.Name = 33, "" },
	} {
		b := good
		spoil(&b)
		if diff := cmp.Diff(want, fmt.Sprint(config.CheckBounds(b))); diff != "" {
			t.Error(diff)
		}
	}
	good.Nested, good.Port = nested{}, 1000
	if err := config.CheckBounds(good); err != nil {
		t.Errorf("what is off, and a value at its bound: %v", err)
	}
}
