package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// binary is one program of a folder.
type binary struct {
	name     string
	bytes    int64
	stripped bool // it has no symbol table
}

// readBinaries are the programs of a folder and of the folders below, the largest first.
func readBinaries(folder string) ([]binary, error) {
	var out []binary
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		program, err := elf.Open(file)
		if err != nil {
			return nil // what is no program is not counted
		}
		defer program.Close()
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, file)
		out = append(out, binary{filepath.ToSlash(name), info.Size(), program.Section(".symtab") == nil})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the binaries of %s: %w", folder, err)
	}
	slices.SortFunc(out, func(x, y binary) int { return cmp.Or(cmp.Compare(y.bytes, x.bytes), cmp.Compare(x.name, y.name)) })
	return out, nil
}
