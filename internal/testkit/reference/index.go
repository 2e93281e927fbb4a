package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Index checks, or writes, the page of what all programs have in common: common is
// the struct of their flags.
func Index(t testing.TB, common any) {
	t.Helper()
	r := newRows(t, reflect.TypeOf(common))
	r.fields(reflect.ValueOf(common), place{hasDefaults: true})
	var out strings.Builder
	out.WriteString(about)
	out.WriteString("\n| flag | type | default | meaning |\n|---|---|---|---|\n")
	for _, x := range r.all {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", code(x.flag), x.kind, code(x.value), Cell(x.meaning))
	}
	out.WriteString("\n## Programs\n\nKeys that several programs share are in [shared blocks](shared.md).\n\n")
	pages, err := filepath.Glob(filepath.Join(root(t), "docs/reference/configuration/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var used strings.Builder
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); name != "README" && name != "shared" {
			fmt.Fprintf(&out, "- [%s](%s.md)\n", name, name)
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			used.Write(text)
		}
	}
	unused(t, used.String())
	Check(t, "docs/reference/configuration/README.md", out.String())
}

// unused reports each section of shared.md that the page of no program names.
func unused(t testing.TB, pages string) {
	t.Helper()
	shared, err := os.ReadFile(filepath.Join(root(t), sharedPage))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range sectionsOf(string(shared)) {
		if b := (block{title: titleOf(section)}); !strings.Contains(pages, b.link()) {
			t.Errorf("%s: no program uses section %q: take it out", sharedPage, b.title)
		}
	}
}

const about = `# Configuration

Written from the programs by ` + "`make generate`" + `.

A program reads its defaults first, then the file of ` + "`--config`" + `, then environment variables, then flags. A later source overrides an earlier one. The file is TOML, or YAML with the same keys if its name ends in ` + "`.yaml`" + `. An unknown key or a value outside its bounds stops the start with an error. To check a configuration without a start, run the program with ` + "`--check-config`" + `.

- Keys are in camelCase. The error of an unknown key names the present spelling or the nearest known key. [nvsentinel convert-config](../cli.md#convert-config) converts files of the earlier NVSentinel.
- ` + "`a.b`" + ` is the key ` + "`b`" + ` of the table ` + "`[a]`" + `. ` + "`a[].b`" + ` is the key in each table of the list ` + "`[[a]]`" + `. ` + "`a.NAME.b`" + ` is the key in a table whose name you choose.
- A key of type secret takes a [reference](#secrets). In any other text a reference is an error.
- A duration is written like ` + "`90s`, `5m` or `24h`" + `. In a flag, commas separate the entries of a list.
- Restart "no": the running program applies a change of the file.

## Secrets

A key of type **secret** takes a text or a reference: ` + "`${env:NAME}` or `${file:/path}`" + `. The reference has to be the whole text. The program replaces it at the start. The file is a regular file, for example a key of a mounted Secret, with one line of at most 64 KiB.

In every other key, flag and variable, also within rules, policies, patterns and metadata, a text with ` + "`${env:` or `${file:`" + ` is an error that names the place. Therefore an author of a rule cannot read a secret with it. If you need that text literally, write ` + "`$${env:` or `$${file:`" + `. If another value has to come from the environment, let Kubernetes put it into an argument: ` + "`--endpoint=$(NAME)`" + `. Templates of objects and tickets are no configuration. They are passed on unchanged, and nothing in them is resolved.

A key of type **file of a secret** takes the path of such a file, which the program reads when it uses the secret. A file that another key names is refused, and so is the Pod's own token for the API server, because an author of the configuration often chooses the receiver too.

Logs, errors, ` + "`--help`, `--check-config`" + ` and printed configurations show the reference of a secret or ` + "`[redacted]`" + `, and the path of a file.

## Flags of every program
`
