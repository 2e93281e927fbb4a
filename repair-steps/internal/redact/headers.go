package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"unicode/utf8"
)

// headers are those of HTTP that let someone in, and what they have in them.
func headers() []rule {
	return []rule{
		{[]string{"authorization"}, header(authorization)},
		{[]string{"cookie"}, header(cookie)},
		{[]string{"aws4-hmac-sha256"}, toTextEnd},
		{[]string{"bearer"}, bearer},
		{[]string{"basic "}, basic},
		{[]string{"auth"}, auth},
	}
}

var (
	authorization = regexp.MustCompile(`^["'\\\])]*\s*[:=]>?\s*`)
	cookie        = regexp.MustCompile(`^["'\\\])]*\s*:\s*`)
	credentials   = regexp.MustCompile(`^(\\*")?\s*[:=]\s*`)
	bearers       = regexp.MustCompile(`^["'\\]*[\s:=]+`)
	challenge     = regexp.MustCompile(`^(?:realm=|tokens?\b|auth\b)|^[A-Za-z]?[a-z]{1,15}[,.:;)]?$`)
)

// header finds the value of a header: in quotes up to the closing one, else to the end of
// the line or of the string that has the header in it.
func header(colon *regexp.Regexp) func(line, lower []byte, sign span) []span {
	return func(line, _ []byte, sign span) []span {
		m := colon.Find(line[sign.to:min(len(line), sign.to+64)])
		at := sign.to + len(m)
		if m == nil || at == len(line) || line[at] == '{' {
			return nil
		}
		v, ok := value(line, at)
		if !ok || nothing.Match(line[v.from:v.to]) || trouble.Match(line[v.from:v.to]) {
			return nil
		}
		if v.from > at {
			return []span{v}
		}
		return []span{{at, textEnd(line, at)}}
	}
}

// toTextEnd finds a sign and all behind it.
func toTextEnd(line, _ []byte, sign span) []span { return []span{{sign.from, textEnd(line, sign.to)}} }

// textEnd is the end of the line, or of the string that a place is in.
func textEnd(line []byte, at int) int {
	if !inString(line, at) {
		return len(line)
	}
	if end, ok := closing(line, at, '"', 0); ok {
		return end.from
	}
	return len(line)
}

// bearer finds the token behind the word; what a server asks for with it is none.
func bearer(line, _ []byte, sign span) []span {
	m := bearers.Find(line[sign.to:min(len(line), sign.to+64)])
	if m == nil {
		return nil
	}
	s, ok := value(line, sign.to+len(m))
	if !ok || challenge.Match(line[s.from:s.to]) || nothing.Match(line[s.from:s.to]) {
		return nil
	}
	return []span{s}
}

// basic finds a user and password in base64.
func basic(line, _ []byte, sign span) []span {
	if end := loginEnd(line, sign.to); end > sign.to {
		return []span{{sign.to, end}}
	}
	return nil
}

// auth finds the credentials of a registry: "auth": "...", as Docker's configuration has
// them; of other texts, a user and password in base64.
func auth(line, _ []byte, sign span) []span {
	m := credentials.FindSubmatch(line[sign.to:min(len(line), sign.to+64)])
	if m == nil {
		return nil
	}
	at := sign.to + len(m[0])
	begin := at + len(line[at:]) - len(bytes.TrimLeft(line[at:], `\"'`))
	if len(m[1]) == 0 && loginEnd(line, begin) == begin {
		return nil
	}
	s, ok := value(line, at)
	if !ok || line[s.from] == '{' || nothing.Match(line[s.from:s.to]) {
		return nil
	}
	return []span{s}
}

// loginEnd is the end of the base64 of a user and password that begins at a place; the
// place itself if it is something else.
func loginEnd(line []byte, at int) int {
	end := at
	for end < len(line) && end-at < window && (inWord(line[end]) || line[end] == '+' || line[end] == '/') {
		end++
	}
	text, err := base64.RawStdEncoding.DecodeString(string(line[at:end]))
	if err != nil || !utf8.Valid(text) || !bytes.Contains(text, []byte(":")) {
		return at
	}
	return end
}

// command is a program that takes a secret as an argument without a name in words.
type command struct {
	// names of the program, or what the names of several begin with.
	names []string
	// mark is what the option begins with, anywhere behind the name. An empty one stands
	// for the place right behind the name.
	mark string
	// option is a pattern of what is in front of the secret, from the mark on; its group is
	// empty and stands where the secret begins.
	option string
}

// next is what is between two arguments: spaces, or the quotes and commas of a list; the
// audit log numbers arguments.
const next = `["'\\]*(?:,|\s)\s*(?:a\d+=)?`

// short is an option of one letter, with its value behind it or as the next argument.
func short(letters string) string { return `-[` + letters + `](?:` + next + `)?()` }

// worded is an option in words.
func worded(names string) string { return `--(?:` + names + `)(?:=|` + next + `)()` }

// programs and their options are those of their manuals.
var programs = []command{
	{[]string{"ipmitool"}, "-", short("PKky")},
	{[]string{"ipmiconsole", "ipmipower", "ipmi-", "bmc-"}, "-", short("pk")},
	{[]string{"racadm", "redfishtool", "ilorest"}, "-", short("p")},
	{[]string{"curl"}, "-", `-[fgikLnNsSvZ#0-3]{0,8}[uUb](?:` + next + `)?()`},
	{[]string{"curl"}, "--", worded("user|proxy-user|cookie|oauth2-bearer")},
	{[]string{"etcdctl"}, "--", worded("user")},
	{[]string{"mysql", "mariadb"}, "-", `-p()["']?[^\s"',\\]`},
	{[]string{"sqlcmd", "bcp ", "zip "}, "-", short("P")},
	{[]string{"redis-cli"}, "-", short("a")},
	{[]string{"mongo", "useradd", "usermod", "7z ", "login"}, "-", short("p")},
	{[]string{"sshpass"}, "", next + `["'\\]*` + short("p")},
	{[]string{"ldap"}, "-", short("w")},
	{[]string{"snmp"}, "-", short("AXc")},
	{[]string{"smbclient", "rpcclient", "mount.cifs"}, "%", `%()[^\s]`},
	{[]string{"ctr "}, "-", `(?:-u|--user)(?:=|` + next + `)()`},
	{
		[]string{"--creds", "--src-creds", "--dest-creds", "--from-literal", "--bmc"}, "",
		`(?:=|` + next + `)(?:["'\\]*[\w.-]+=)?()`,
	},
	{[]string{"vault login"}, "", next + `()`},
	{[]string{"nmcli"}, "password", `password` + next + `()`},
	{[]string{"rabbitmqctl"}, "add_user", `add_user` + next + `\S+` + next + `()`},
	{[]string{"rabbitmqctl"}, "change_password", `change_password` + next + `\S+` + next + `()`},
	// netrc(5): machine NAME login NAME password SECRET; switches: username NAME password SECRET
	{[]string{"login ", "username "}, "", `\S+\s+password\s+(?:\d\s+)?()`},
	// SQL: CREATE USER ... IDENTIFIED BY '...'
	{[]string{"identified by", "identified with"}, "", `(?: \w+ (?i:by))?\s+()["']`},
}

// commands are the rules for programs.
func commands() (rules []rule) {
	for _, c := range programs {
		rules = append(rules, rule{c.names, c.finder()})
	}
	return rules
}

func (c command) finder() func(line, lower []byte, sign span) []span {
	option := regexp.MustCompile(`^` + c.option)
	return func(line, _ []byte, sign span) (found []span) {
		text := line[sign.to:min(len(line), sign.to+window)]
		for _, at := range c.marks(text) {
			m := option.FindSubmatchIndex(text[at:min(len(text), at+256)])
			if m == nil {
				continue
			}
			s, ok := value(line, sign.to+at+m[2])
			if v := line[s.from:s.to]; ok && !nothing.Match(v) && !bytes.HasPrefix(v, []byte("--")) && !anOption.Match(v) {
				found = append(found, s)
			}
		}
		return found
	}
}

// marks are the places of a text where the option may be.
func (c command) marks(text []byte) (all []int) {
	if c.mark == "" {
		return []int{0}
	}
	for at := 0; len(all) < maxSigns; {
		i := bytes.Index(text[at:], []byte(c.mark))
		if i < 0 {
			break
		}
		at += i + 1
		if c.mark[0] != '-' || at == 1 || bytes.IndexByte([]byte(" \t\"'\\,="), text[at-2]) >= 0 {
			all = append(all, at-1)
		}
	}
	return all
}

// anOption is another option where a value could be: the program asks for the secret.
var anOption = regexp.MustCompile(`^-[a-zA-Z]$`)
