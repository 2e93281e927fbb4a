package redact

import (
	"strings"
	"testing"
)

// TestNamesAndValuesOnDifferentLines: what a line announces, how long, and what ends it. S is
// secret, and nothing else is.
func TestNamesAndValuesOnDifferentLines(t *testing.T) {
	const other = "another line\n"
	for name, text := range map[string]string{
		"the next line":                 "- name: DB_PASSWORD\n  value: S\n  value: stays\n",
		"lines between":                 "- name: DB_PASSWORD\n" + strings.Repeat(other, maxNameLines-1) + "  value: S\n",
		"too many lines between":        "- name: DB_PASSWORD\n" + strings.Repeat(other, maxNameLines) + "  value: stays\n",
		"another name":                  "- name: DB_PASSWORD\n- name: MODE\n  value: stays\n",
		"from a Secret":                 "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db\n      key: password\n- name: MODE\n  value: stays\n",
		"in JSON":                       "\"name\": \"DB_PASSWORD\",\n\"value\": \"S\"\n",
		"as a block":                    "- name: DB_PASSWORD\n  value: |\n    S\n    S\n  other: stays\n",
		"a word below":                  "password:\nS\nstays\n",
		"a sentence below":              "Password:\nPermission denied, please try again.\nstays\n",
		"indented below":                "password:\n  S\n  S\nstays\n",
		"a list below":                  "passwords:\n- S\n- S\nstays\n",
		"a list of JSON below":          "\"tokens\": [\n  \"S\",\n  \"S\"\n],\nstays\n",
		"a mapping below":               "secret:\n  secretName: stays\n  defaultMode: 420\n",
		"another mapping below":         "token:\n  realm: test-token-service\n",
		"a block, with an empty line":   "token: |-\n  S\n\n  S\nstays\n",
		"a block that is indented":      "  token: >\n    S\n  stays: x\n",
		"a journal's block":             "Nov 23 17:21:39 gpu-1 unit[7]: token: |\nNov 23 17:21:39 gpu-1 unit[7]:   S\nNov 23 17:21:39 gpu-1 unit[7]: stays\n",
		"a container's block":           "2025-11-23T17:21:39.1Z stdout F token: |\n2025-11-23T17:21:39.1Z stdout F   S\n2025-11-23T17:21:39.1Z stdout F stays\n",
		"a name that is not a secret's": "mode:\n  stays\ntokenFile:\n  stays\n",
		"as long as may be":             "token: |\n" + strings.Repeat("  S\n", maxKeyLines),
		"longer than may be":            "token: |\n" + strings.Repeat("  S\n", maxKeyLines) + "  stays\n",
	} {
		secret := strings.ReplaceAll(text, "S\n", "hunter2\n")
		secret = strings.NewReplacer(`"S"`, `"hunter2"`).Replace(secret)
		want := strings.NewReplacer("S\n", Mask+"\n", `"S"`, `"`+Mask+`"`).Replace(text)
		if out, _ := clean(t, secret, 4096); out != want {
			t.Errorf("%s: %q, want %q", name, out, want)
		}
	}
}

// TestALongLineOfAContainer comes in parts.
func TestALongLineOfAContainer(t *testing.T) {
	const stdout, stderr = "2025-11-23T17:21:39.1Z stdout ", "2025-11-23T17:21:39.1Z stderr "
	half := strings.Repeat("x", maxLine/2)
	for name, c := range map[string]struct{ text, want string }{
		"two parts":            {stdout + "P token=ab\n" + stdout + "F cd e\n", stdout + "F token=" + Mask + " e\n"},
		"three parts":          {stdout + "P to\n" + stdout + "P ken=\n" + stdout + "F ab\n", stdout + "F token=" + Mask + "\n"},
		"of two streams":       {stdout + "P token=ab\n" + stderr + "F x\n" + stdout + "F cd\n", stderr + "F x\n" + stdout + "F token=" + Mask + "\n"},
		"with more tags":       {stdout + "P:1 token=ab\n" + stdout + "F:1 cd\n", stdout + "F:1 token=" + Mask + "\n"},
		"a last part alone":    {stdout + "F token=ab\n", stdout + "F token=" + Mask + "\n"},
		"whose end is missing": {stdout + "P token=ab\nx", "x\n" + stdout + "F token=" + Mask + "\n"},
		"that is too long": {
			stdout + "P " + half + "\n" + stdout + "P " + half + "\n" + stdout + "P token=ab\n" + stdout + "F cd\nx\n",
			"[a line of 262186 bytes was removed]\nx\n",
		},
	} {
		if out, w := clean(t, c.text, 4096); out != c.want {
			t.Errorf("%s: %q, want %q", name, out[:min(len(out), 300)], c.want)
		} else if len(w.parts.unfinished()) > 0 {
			t.Errorf("%s: something is still held", name)
		}
	}
}
