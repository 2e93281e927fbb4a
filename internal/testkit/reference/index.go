package reference

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Index checks, or writes, the page of what all programs have in common: common is
// the struct of their flags.
func Index(t testing.TB, common any) {
	t.Helper()
	r := &rows{t: t, source: source{root: root(t)}}
	r.fields(reflect.ValueOf(common), place{given: true})
	var out strings.Builder
	out.WriteString(about)
	out.WriteString("\n| flag | type | default | meaning |\n|---|---|---|---|\n")
	for _, x := range r.all {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", code(x.flag), x.kind, code(x.value), Cell(x.meaning))
	}
	out.WriteString("\n## Programs\n\n")
	pages, err := filepath.Glob(filepath.Join(root(t), "docs/configuration/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); name != "README" {
			fmt.Fprintf(&out, "- [%s](%s.md)\n", name, name)
		}
	}
	Check(t, "docs/configuration/README.md", out.String())
}

const about = `# Configuration

Written from the programs by ` + "`make generate`" + `.

A program reads its defaults, then the file of ` + "`--config`" + `, then variables of the environment, then flags; the later wins. The file is TOML, or YAML with the same keys if its name ends in ` + "`.yaml`" + `. An unknown key is an error at the start, and so is a value out of its bounds. ` + "`--check-config`" + ` says both without a start.

- Keys are written in camelCase. A key in another spelling is an error that names the present one; [nvsentinel convert-config](../cli.md#converting-a-configuration) converts files of the earlier NVSentinel.
- ` + "`a.b`" + ` is the key ` + "`b`" + ` of the table ` + "`[a]`" + `; ` + "`a[].b`" + ` that of each table in the list ` + "`[[a]]`" + `; ` + "`a.NAME.b`" + ` that of a table with a name of yours.
- A key of type secret takes a [reference](#secrets); in any other text a reference is an error.
- A duration is written like ` + "`90s`, `5m` or `24h`" + `. A list is separated by commas in a flag.
- Restart "no": a change of the file is taken over while the program runs.

## Secrets

A key of type **secret** takes a text, or a reference: ` + "`${env:NAME}` or `${file:/path}`" + `. A reference is the whole text, and is replaced by what it names when the program starts. The file is a regular one, such as a key of a mounted Secret, with one line of at most 64 KiB.

In every other key, flag and variable, also within rules, policies, patterns and metadata, a text with ` + "`${env:` or `${file:`" + ` is an error that names the place: who may write a rule reads no secret by it. For a text that is meant so write ` + "`$${env:` or `$${file:`" + `. Where another value has to come from the environment, let Kubernetes put it into an argument: ` + "`--endpoint=$(NAME)`" + `. Templates of objects and tickets are no configuration: they are passed on as they are, and nothing in them is resolved.

A key of type **file of a secret** takes the path of such a file, which is read when it is used. Who may write the configuration often chooses the receiver too, so a file that another key names is refused, and so is the pod's own token for the API server.

Logs, errors, ` + "`--help`, `--check-config`" + ` and printed configurations show the reference of a secret, or ` + "`[redacted]`" + `, and of a file its path.

## Flags of every program
`
