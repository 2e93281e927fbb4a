package redact

import (
	"bytes"
	"regexp"
)

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
