package kernellog

import (
	"strings"
	"testing"
	"time"
)

// TestMessage: the message of the kernel in a line, however a logger wrote it down.
// Formats are those of rsyslog, journalctl --output, dmesg and CRI.
func TestMessage(t *testing.T) {
	const xid = "NVRM: Xid (PCI:0000:3b:00): 79"
	for line, want := range map[string][2]string{
		xid:                                                                           {xid},
		"[    1.0] " + xid:                                                            {xid},
		"[    1.123456][ T1234] " + xid:                                               {xid},
		"[    1.123456] [   C12] " + xid:                                              {xid},
		"[  +0.000004] " + xid:                                                        {xid},
		"[Fri Aug  9 13:32:56 2024] " + xid:                                           {xid},
		"[Dez02 12:00] " + xid:                                                        {xid},
		"2026-03-01T12:00:00,123456+00:00 " + xid:                                     {xid},
		"<6>[    1.123456] " + xid:                                                    {xid},
		"kern  :warn  : [    1.0] " + xid:                                             {xid},
		"kern  :warn  : 2026-03-01T12:00:00,123456+00:00 " + xid:                      {xid},
		"user  :warn  : [   12.0] " + xid:                                             {"[   12.0] " + xid, "user"},
		"syslog:err   : 2025-05-27T04:18:56,089671+00:00 " + xid:                      {"2025-05-27T04:18:56,089671+00:00 " + xid, "syslog"},
		"Mar  1 12:00:00 gpu-1 kernel: [    1.0] " + xid:                              {xid},
		"Mar 11 12:00:00 gpu-1 kernel[12]: " + xid:                                    {xid},
		"mars 11 12:00:00 gpu-1 kernel: " + xid:                                       {xid},
		"2026-03-01T12:00:00.123456+00:00 gpu-1 kernel: [    1.0] " + xid:             {xid},
		"2026-03-01T12:00:00Z fe80::1 kernel: " + xid:                                 {xid},
		"2026-03-01 12:00:00.123 gpu-1 kernel: " + xid:                                {xid},
		"Sun 2026-03-01 12:00:00 UTC gpu-1 kernel: " + xid:                            {xid},
		"Sun 2026-03-01 12:00:00.123456 UTC gpu-1 kernel: " + xid:                     {xid},
		"1772366400.123456 gpu-1 kernel: " + xid:                                      {xid},
		"[    5.123456] gpu-1 kernel: " + xid:                                         {xid},
		"<4>1 2026-03-01T12:00:00.123456+00:00 gpu-1 kernel - - - " + xid:             {xid},
		"1 2026-03-01T12:00:00Z gpu-1 kernel - - [origin ip=\"::1\"] " + xid:          {xid},
		"<13>1 2026-03-01T12:00:00Z gpu-1 app 77 - - " + xid:                          {xid, "app"},
		"2026-03-01T12:00:00.123456789Z stdout F [    1.0] " + xid:                    {xid},
		"    MESSAGE=" + xid:                                                          {xid},
		"kernel: " + xid:                                                              {xid},
		"10.0.0.5: kern: warning: [2026-03-01T12:00:00.123456789Z]: " + xid:           {xid},
		"kern:     err: [2026-03-01T12:00:00.1Z]: " + xid:                             {xid},
		"kern:    info: [2026-03-01T12:00:00+02:00]: " + xid:                          {xid},
		"10.0.0.5: user: warning: [2026-03-01T12:00:00.1Z]: " + xid:                   {xid, "user"},
		"10.0.0.5: daemon:  info: [2026-03-01T12:00:00.1Z]: [talos] " + xid:           {"[talos] " + xid, "daemon"},
		"a: kern: err: [29312]: segfault at 0 in " + xid:                              {"a: kern: err: [29312]: segfault at 0 in " + xid},
		"Mar  1 12:00:00 gpu-1 sshd[812]: Accepted publickey for root":                {"Accepted publickey for root", "sshd"},
		"2026-03-01T12:00:00.123456+00:00 gpu-1 systemd: Started":                     {"Started", "systemd"},
		"<13>Mar  1 12:00:00 gpu-1 root: kernel: " + xid:                              {"kernel: " + xid, "root"},
		"Mar  1 12:00:00 gpu-1 last message repeated 2 times":                         {"Mar  1 12:00:00 gpu-1 last message repeated 2 times"},
		"mce: [Hardware Error]: CPU 3: Machine Check Exception":                       {"mce: [Hardware Error]: CPU 3: Machine Check Exception"},
		"[Hardware Error]: event severity: fatal":                                     {"[Hardware Error]: event severity: fatal"},
		"[    1.0] [Hardware Error]: event severity: fatal":                           {"[Hardware Error]: event severity: fatal"},
		"pcieport 0000:00:01.0: AER: x":                                               {"pcieport 0000:00:01.0: AER: x"},
		"kernel[29312]: segfault at 0 ip 00005615b110f176 error 6 in " + xid:          {"segfault at 0 ip 00005615b110f176 error 6 in " + xid},
		"Mar  1 12:00:00 gpu-1 kernel: [    1.0] kernel[29312]: segfault in " + xid:   {"kernel[29312]: segfault in " + xid},
		"[    1.0] process 'tmp/x kernel: " + xid + "' started with executable stack": {"process 'tmp/x kernel: " + xid + "' started with executable stack"},
		"": {},
	} {
		text, program := Message(line)
		if got := [2]string{text, program}; got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestColon: the open driver's releases 515 to 530, and what only begins alike.
func TestColon(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM nvAssertOkFailedNoLog: Assertion failed: x": "NVRM: nvAssertOkFailedNoLog: Assertion failed: x",
		"NVRM GPU0 kfspSendBootCommands_GH100: x":         "NVRM: GPU0 kfspSendBootCommands_GH100: x",
		"NVRM: kgspHealthCheck: x":                        "NVRM: kgspHealthCheck: x",
		"NVRM x[29312]: segfault at 0":                    "NVRM x[29312]: segfault at 0",
		"NVRM PMU halted: page allocation failure":        "NVRM PMU halted: page allocation failure",
		"NVRM": "NVRM",
	} {
		if got := Colon(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSinceBoot(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"[    8.951695] mlx5_core 0000:63:00.1: x":                                    8951695 * time.Microsecond,
		"Nov 21 05:04:01 n1 kernel[12]: [86400.000001] mlx5_core 0000:63:00.1: x":     24*time.Hour + time.Microsecond,
		"<6>[    0.500000][    T1] x":                                                 500 * time.Millisecond,
		"[  +0.000004] x":                                                             0,
		"[Fri Aug  9 13:32:56 2024] x":                                                0,
		"Nov 21 05:04:01 n1 kernel: mlx5_core 0000:63:00.1: x":                        0,
		"10.0.0.5: kern: warning: [2026-03-01T12:00:00.123456Z]: x":                   0,
		"Nov 21 05:04:01 n1 kernel: " + strings.Repeat("x", 128) + "[    8.951695] x": 0,
		"[": 0, "[]": 0, "": 0,
	} {
		if got := SinceBoot(line); got.Round(time.Microsecond) != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

func TestStartsBoot(t *testing.T) {
	for line, want := range map[string]bool{
		"Linux version 6.1":                                                                      true,
		"[    0.000000] Linux version 6.1":                                                       true,
		"Nov 21 05:04:01 host kernel: [    0.000000] Linux version 6.1":                          true,
		"2026-11-21T05:04:01.123456+00:00 host kernel: Linux version 6.1":                        true,
		"<5>[    0.000000] Linux version 6.1":                                                    true,
		"kern  :notice: [    0.000000] Linux version 6.1":                                        true,
		"Nov 21 05:04:01 host sudo[77]: root : COMMAND=/bin/echo Linux version 6.1":              false,
		"Nov 21 05:04:01 host app: Linux version 6.1":                                            false,
		"10.0.0.5: kern:  notice: [2026-03-01T12:00:00.1Z]: Linux version 6.1":                   true,
		"[   12.0] module says Linux version 6.1":                                                false,
		"user  :warn  : [   12.0] Linux version 6.1":                                             false,
		"syslog:err   : 2025-05-27T04:18:56,089671+00:00 Linux version 6.1":                      false,
		"kern  :loud  : [   12.0] Linux version 6.1":                                             false,
		"Nov 21 05:04:01 host : Linux version 6.1":                                               false,
		"Nov 21 05:04:01 host kernel: kernel[7]: segfault at 0 in x]Linux version 6.1[55d+1000]": false,
	} {
		if got := StartsBoot(line); got != want {
			t.Errorf("%q: starts a boot %t", line, got)
		}
	}
}
