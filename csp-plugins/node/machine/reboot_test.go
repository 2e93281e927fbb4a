package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
)

// world is a machine that records what is done to it.
type world struct {
	boot                 string
	systemd, sysrq, kmsg error
	did                  []string
	start                time.Time
	records              []string
}

func (w *world) host() Host {
	step := func(what string) {
		w.did = append(w.did, fmt.Sprintf("%s at %s", what, time.Since(w.start).Round(time.Second)))
	}
	return Host{
		BootID: func() (string, error) { return w.boot, nil },
		Record: func(text string) error {
			w.records = append(w.records, text)
			return w.kmsg
		},
		Systemd: func(context.Context) error { step("systemd"); return w.systemd },
		Sysrq:   func(command byte) error { step(string(command)); return w.sysrq },
		Clock:   clock.RealClock{}, Log: func(string, ...any) {},
	}
}

func TestReboot(t *testing.T) {
	failed := errors.New("refused")
	for name, tt := range map[string]struct {
		world world
		order func(*order.Order)
		want  order.Result
		did   []string
	}{
		"systemd accepts and the machine stays up": {
			world{boot: "boot-0"}, nil, order.Requested,
			[]string{"systemd at 5s", "s at 1m35s", "u at 1m38s", "b at 1m41s"},
		},
		"systemd refuses": {
			world{boot: "boot-0", systemd: failed}, nil, order.Requested,
			[]string{"systemd at 5s", "s at 5s", "u at 8s", "b at 11s"},
		},
		"forced": {
			world{boot: "boot-0"}, func(o *order.Order) { o.Force = true }, order.Requested,
			[]string{"s at 5s", "u at 8s", "b at 11s"},
		},
		"neither works": {
			world{boot: "boot-0", systemd: failed, sysrq: failed}, nil, order.Failed,
			[]string{"systemd at 5s", "s at 5s"},
		},
		"systemd accepts and there is no sysrq": {
			world{boot: "boot-0", sysrq: failed}, nil, order.Requested,
			[]string{"systemd at 5s", "s at 1m35s"},
		},
		"no kernel log": {
			world{boot: "boot-0", systemd: failed, kmsg: failed}, nil, order.Requested,
			[]string{"systemd at 5s", "s at 5s", "u at 8s", "b at 11s"},
		},
		"another boot": {world{boot: "boot-1"}, nil, order.OtherBoot, nil},
		"late":         {world{boot: "boot-0"}, func(o *order.Order) { o.StartBy = o.StartBy.Add(-2 * time.Minute) }, order.Late, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &tt.world
				w.start = time.Now()
				o := order.Order{Key: "uid-1", Node: "a", BootID: "boot-0", StartBy: w.start.Add(time.Minute), SystemdTimeout: 90 * time.Second}
				if tt.order != nil {
					tt.order(&o)
				}
				if got := w.host().Reboot(t.Context(), o); got != tt.want || !slices.Equal(w.did, tt.did) {
					t.Errorf("%s after %q; want %s after %q", got, w.did, tt.want, tt.did)
				}
				if len(w.records) == 0 || !strings.Contains(w.records[0], "rebooting") || !strings.Contains(w.records[0], "object uid-1") {
					t.Errorf("the kernel log has %q", w.records)
				}
			})
		})
	}
}

func TestAnInvalidOrderDoesNothing(t *testing.T) {
	w := world{boot: "boot-0"}
	if got := run(w.host(), func(string) string { return "" }); got != order.Unreadable || len(w.did) > 0 {
		t.Errorf("%s after %q", got, w.did)
	}
}

func TestFilesOfTheHost(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got, err := bootID(file("boot_id", "boot-0\n"))(); got != "boot-0" || err != nil {
		t.Errorf("the boot id is %q, %v", got, err)
	}
	log, trigger := file("kmsg", ""), file("trigger", "")
	if err := errors.Join(record(log)("<12>x\n"), sysrq(trigger)('s'), sysrq(trigger)('b')); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{log: "<12>x\n", trigger: "sb"} {
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("%s contains %q, %v; want %q", path, got, err, want)
		}
	}
	if err := sysrq(filepath.Join(dir, "none"))('b'); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a kernel without sysrq: %v", err)
	}
}
