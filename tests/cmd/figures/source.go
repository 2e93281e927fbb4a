package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"unicode/utf8"
)

// maxColumns is the length of a line that is counted as long; a tab is one column.
const maxColumns = 120

// kind is the purpose of a Go file.
type kind int

// Kinds of Go files.
const (
	product   kind = iota
	machinery      // of tests, of the demo, or of what generates source
	test           // _test.go
	generated
)

// source is one Go file.
type source struct {
	path      string // slashes, below the root
	kind      kind
	pkg       string // name of its package
	code      int    // lines with at least one token
	comments  int    // lines with a comment and no token
	lines     int    // all lines
	long      int    // lines over maxColumns
	functions []int  // lines of the body of each declared function
}

// folder is the folder of the file's package.
func (s source) folder() string { return path.Dir(s.path) }

// readSource measures one Go file.
func readSource(root, name string) (source, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return source{}, fmt.Errorf("reading a source file: %w", err)
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("parsing a source file: %w", err)
	}
	s := source{path: name, kind: kindOf(name, ast.IsGenerated(parsed)), pkg: parsed.Name.Name}
	s.code, s.comments = tokenLines(text)
	s.lines, s.long = textLines(text)
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			first, last := files.Position(f.Body.Lbrace).Line, files.Position(f.Body.Rbrace).Line
			s.functions = append(s.functions, max(1, last-first-1))
		}
	}
	return s, nil
}

// tokenLines counts the lines with a token, and those with nothing but a comment. A token
// of several lines, as a raw string, counts on each of them.
func tokenLines(text []byte) (code, comments int) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	hasToken, hasComment := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own
		}
		on := hasToken
		if tok == token.COMMENT {
			on = hasComment
		}
		for line, last := file.Line(pos), file.Line(pos)+bytes.Count([]byte(literal), []byte("\n")); line <= last; line++ {
			on[line] = true
		}
	}
	for line := range hasComment {
		if !hasToken[line] {
			comments++
		}
	}
	return len(hasToken), comments
}

// textLines counts the lines, and those that are too long.
func textLines(text []byte) (all, long int) {
	for line := range bytes.Lines(text) {
		all++
		if utf8.RuneCount(bytes.TrimRight(line, "\r\n")) > maxColumns {
			long++
		}
	}
	return all, long
}
