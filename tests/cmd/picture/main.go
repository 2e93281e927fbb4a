// Command picture draws the text of its standard input as a terminal, in SVG on its standard
// output. make demo-output draws the demo with it.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Sizes in pixels of a character of a 13 px monospaced font, and of the frame.
const (
	width, height = 7.83, 18.0
	frame         = 16.0
	// most columns of a line: a longer one is cut.
	most = 118
)

func main() {
	title := flag.String("title", "", "text above the terminal")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "picture draws the text of its standard input as a terminal, in SVG.\n\nUsage: picture [--title <text>] < text > picture.svg")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := draw(os.Stdout, os.Stdin, *title); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func draw(out io.Writer, in io.Reader, title string) error {
	var lines []string
	columns := utf8.RuneCountInString(title)
	for scanner := bufio.NewScanner(in); ; {
		if !scanner.Scan() {
			if err := scanner.Err(); err != nil {
				return fmt.Errorf("reading the text: %w", err)
			}
			break
		}
		line := strings.ReplaceAll(scanner.Text(), "\t", "    ")
		if runes := []rune(line); len(runes) > most {
			line = string(runes[:most-1]) + "…"
		}
		lines, columns = append(lines, line), max(columns, utf8.RuneCountInString(line))
	}
	w, h := float64(columns)*width+2*frame, float64(len(lines)+2)*height+2*frame
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">`+"\n", w, h)
	fmt.Fprintf(&b, `<title>%s</title><rect width="100%%" height="100%%" rx="8" fill="#14181f"/>`+"\n", html.EscapeString(title))
	fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" fill="#8b949e">%s</text>`+"\n", frame, frame+height*0.7, html.EscapeString(title))
	for i, line := range lines {
		if strings.TrimSpace(line) != "" {
			fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" fill="%s" xml:space="preserve">%s</text>`+"\n", frame, frame+height*(float64(i)+2.7), color(line), html.EscapeString(line))
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// color is that of a line: commands and kernel lines stand out.
func color(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return "#79c0ff"
	case strings.Contains(line, "NVRM: Xid"):
		return "#ff7b72"
	}
	return "#e6edf3"
}
