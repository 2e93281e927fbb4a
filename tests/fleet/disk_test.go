package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestDiskIsFullAndEmptyAgain(t *testing.T) {
	f := &Fleet{Dir: t.TempDir(), launcher: newLauncher()}
	d, err := f.mount("gpu-0", "1m")
	if err != nil {
		t.Fatal(err)
	}
	defer d.drop()
	for i := range 2 {
		file := filepath.Join(d.root, fmt.Sprint(i))
		if err := d.Fill(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("writing on a full disk: %v", err)
		}
		if err := d.Empty(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Errorf("writing after it was emptied: %v", err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(f.Dir, "disk-gpu-0")); err != nil || len(left) > 0 {
		t.Errorf("the disk is seen outside its namespace: %v, %v", left, err)
	}
}
