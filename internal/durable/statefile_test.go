package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

type shape struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func TestLoad(t *testing.T) {
	for name, tc := range map[string]struct {
		file           string
		found, damaged bool
		want           string
	}{
		"no file":            {},
		"this version":       {file: `{"version":2,"name":"x","newer":1}`, found: true, want: "x"},
		"an older version":   {file: `{"version":1,"name":"x"}`, found: true, want: "x"},
		"without a version":  {file: `{"name":"x"}`, found: true, damaged: true},
		"a newer version":    {file: `{"version":3,"name":"x"}`, found: true, damaged: true},
		"a torn file":        {file: `{"version":2,"na`, found: true, damaged: true},
		"an empty file":      {file: " ", found: true, damaged: true},
		"a field of another": {file: `{"version":2,"name":7}`, found: true, damaged: true},
	} {
		path := filepath.Join(t.TempDir(), "state.json")
		if tc.file != "" {
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var got shape
		found, err := Load(path, Versions{1, 2}, &got)
		if found != tc.found || errors.Is(err, ErrDamaged) != tc.damaged || (err != nil) != tc.damaged || err == nil && got.Name != tc.want {
			t.Errorf("%s: found %t, %+v, %v", name, found, got, err)
		}
	}
}

// TestAFileThatCannotBeReadIsNotDamaged: nothing is known of its content.
func TestAFileThatCannotBeReadIsNotDamaged(t *testing.T) {
	var got shape
	if found, err := Load(t.TempDir(), Versions{0, 1}, &got); !found || err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("a folder: %t, %v", found, err)
	}
}

func TestSavedStateIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	size, err := Save(path, shape{2, "x"})
	if err != nil {
		t.Fatal(err)
	}
	var got shape
	if found, err := Load(path, Versions{2, 2}, &got); !found || err != nil || got != (shape{2, "x"}) {
		t.Errorf("%t, %+v, %v", found, got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != int64(size) {
		t.Errorf("%d bytes, want %v, %v", size, info, err)
	}
	if _, err := Save(filepath.Join(path, "x"), shape{}); err == nil {
		t.Error("saved below a file")
	}
}
