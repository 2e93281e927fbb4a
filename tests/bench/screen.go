package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// leftOutFile is where the scripts write the flags that they left out.
const leftOutFile = "left-out"

// screenScript runs a binary without the flags that it does not know; a flag's value is
// what follows it, unless that is a flag.
const screenScript = `#!/bin/bash
known=' %s '
args=()
while (($#)); do
  if [[ $1 == -- ]]; then args+=("$@"); break; fi
  name=${1%%%%=*}; name=${name#-}; name=${name#-}
  value=(); if [[ $1 == -* && $1 != *=* && $# -gt 1 && $2 != -* ]]; then value=("$2"); fi
  if [[ $1 != -* || $known == *" $name "* ]]; then args+=("$1" "${value[@]}"); else echo "--$name" >>'%s'; fi
  shift $((1 + ${#value[@]}))
done
exec '%s' "${args[@]}"
`

// flagLine is a flag in a program's help.
var flagLine = regexp.MustCompile(`(?m)^\s+--?([A-Za-z][\w-]*)`)

// screen writes the script of a binary, whose help lists its flags; a binary without help is run
// as it is.
func screen(ctx context.Context, binary, script string) error {
	help, err := exec.CommandContext(ctx, binary, "--help").CombinedOutput()
	if err != nil {
		return os.Symlink(binary, script)
	}
	known := []string{"help"}
	for _, m := range flagLine.FindAllSubmatch(help, -1) {
		known = append(known, string(m[1]))
	}
	text := fmt.Sprintf(screenScript, strings.Join(known, " "), filepath.Join(filepath.Dir(script), leftOutFile), binary)
	return os.WriteFile(script, []byte(text), 0o755)
}

// screenAll writes a script for each binary of a folder.
func screenAll(ctx context.Context, folder, scripts string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := screen(ctx, filepath.Join(folder, e.Name()), filepath.Join(scripts, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// leftOut are the flags that were left out by the scripts of a folder.
func leftOut(dir string) []string {
	text, err := os.ReadFile(filepath.Join(dir, leftOutFile))
	if err != nil {
		return nil // none was
	}
	flags := strings.Fields(string(text))
	slices.Sort(flags)
	return slices.Compact(flags)
}
