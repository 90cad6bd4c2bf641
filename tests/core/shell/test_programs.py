"""Programs, pipes and files through which a value would become a command, and warnings for others. RS-65"""

import pytest

from easel.core.shell.template import ShellTemplate, compile_template
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.requirements import case, rule


def compiled(text: str) -> ShellTemplate:
    template = parse_template(text, "command")
    assert isinstance(template, Template)
    return compile_template(template, "command")


REFUSED = [
    # template, and a part of the message
    # a file that is written and then evaluated
    ('echo "VERSION={{state.v}}" > .env && . ./.env && ls',         "it runs `.env`"),
    ('echo "VERSION={{state.v}}" > .env; set -a; source .env',      "it runs `.env`"),
    ('echo "./deploy {{state.v}}" > run.sh && sh run.sh',           "it runs `run.sh`"),
    ("echo {{state.v}} > run.sh && chmod +x run.sh && ./run.sh",    "it runs `run.sh`"),
    ("echo {{state.v}} > run.sh; cd /srv; sudo -n /srv/run.sh",     "it runs `run.sh`"),
    ("echo {{state.v}} | tee run.sh; docker exec web sh /run.sh",   "it runs `run.sh`"),
    ("{ echo {{state.v}}; } > x.sh; . ./x.sh",                      "it runs `x.sh`"),
    ("echo {{state.v}} > a; cp a /tmp/b; mv /tmp/b c.sh; sh c.sh",  "it runs `c.sh`"),
    ("while sh x.sh; do echo {{state.v}} > x.sh; done",             "it runs `x.sh`"),
    ("curl -o run.sh {{state.url}} && sh run.sh",                   "it runs `run.sh`"),
    ("curl {{state.url}} --output=run.py; python3 run.py",          "it runs `run.py`"),
    ("python3 make.py {{state.x}} out.py && python3 out.py",        "it runs `out.py`"),
    ("echo {{state.v}} > q.sql; psql -f q.sql",                     "it runs `q.sql`"),
    ("echo {{state.v}} > q.sql; mysql < q.sql",                     "it runs `q.sql`"),
    ('echo {{state.v}} > a; eval "$(cat a)"',                       "it runs what the shell computes"),
    ('echo {{state.v}} > a; V=$(cat a); eval "$V"',                 "it runs what the shell computes"),
    ('F=run.sh; echo {{state.v}} > "$F"; sh "$F"',                  "it runs what the shell computes"),
    ("echo {{state.a}} > {{state.out}}; sh run.sh",                 "chooses the name of a file"),
    ("echo {{state.v}} >> Makefile",                                "must not write `Makefile`"),
    ("echo {{state.v}} | tee -a ~/.bashrc",                         "must not write `.bashrc`"),
    ('echo {{state.v}} > "$D/x.sh"; cd "$D"; sh x.sh',               "it runs `x.sh`"),
    ("wget http://h/{{state.v}}/x.sh && sh x.sh",                   "it runs `x.sh`"),
    ("find . -fprintf x.sh {{state.v}}; sh x.sh",                   "it runs `x.sh`"),
    ("echo {{state.v}} > a.ts; deno run a.ts",                      "it runs `a.ts`"),
    ("echo {{state.v}} > a; docker exec -i app sh < a",             "it runs `a`"),
    ("echo {{state.v}} > x.sh; sh ./*.sh",                          "the files that match `*.sh`"),
    ("echo {{state.v}} > x.sh; find . -name x.sh -exec sh {} ';'",  "the files that match `{}`"),
    ("echo {{state.v}} > a; $(cat a)",                              "it runs what the shell computes"),
    ("echo {{state.v}} > a; V=$(cat a); $V",                        "it runs what the shell computes"),
    ("echo A={{state.v}} > .env; env $(cat .env) ./deploy",         "it runs what the shell computes"),
    ('echo {{state.v}} >> "$HOME/.bashrc"',                         "must not write `.bashrc`"),
    ("echo '* * * * * root {{state.v}}' > /etc/cron.d/deploy",      "must not write `deploy`"),
    # the input of a group, of the shell itself, or of an open file
    ("{ sh; } <<< {{state.v}}",                                     "`sh` must not follow a pipe"),
    ("( sh ) <<< {{state.v}}",                                      "`sh` must not follow a pipe"),
    ("if true; then sh; fi <<< {{state.v}}",                        "`sh` must not follow a pipe"),
    ("exec 3<<< {{state.v}}; sh <&3",                               "`sh` must not follow a pipe"),
    ("exec <<< {{state.v}}; . /dev/stdin",                          "`.` must not follow a pipe"),
    ("bash /dev/fd/3 3<<< {{state.v}}",                             "`bash`, which evaluates"),
    ("echo {{state.v}} | bash /dev/./stdin",                        "`bash` must not follow a pipe"),
    # variables that are pasted into commands
    ("V={{state.v}} make deploy",                                   "`make` could run a variable"),
    ("export V={{state.v}}; make deploy",                           "`make` could run a variable"),
    ('env "A=1" PATH={{state.v}} ls',                               "after an option of `env`"),
    # an interpreter anywhere in a pipe
    ("echo {{state.v}} | docker exec -i app sh",                    "`sh` must not follow a pipe"),
    ("echo {{state.v}} | kubectl exec -i pod -- bash",              "`bash` must not follow a pipe"),
    ("echo {{state.v}} | sudo docker exec -i web python3 -",        "`python` must not follow a pipe"),
    ("echo {{state.v}} | chroot /srv sh",                           "`sh` must not follow a pipe"),
    ("echo \"select '{{input.name}}';\" | sqlite3 app.db",          "`sqlite3` must not follow a pipe"),
    ("echo {{state.v}} | docker exec -i db psql",                   "`psql` must not follow a pipe"),
    ("docker exec -i app sh <<< {{state.v}}",                       "`sh`, which evaluates"),
    # options that are commands
    ('flock /tmp/l -c "./deploy {{state.v}}"',                      "after an option of `flock`"),
    ('sg staff -c "./deploy {{state.v}}"',                          "after `-c` of `sg`"),
    ("frob -c{{state.v}}",                                          "after `-c` of `frob`"),
    ("frob --command={{state.v}}",                                  "after `--command` of `frob`"),
    ('gcloud compute x --command="ls {{state.v}}"',                 "after `--command` of `gcloud`"),
    ("certbot renew --deploy-hook {{state.v}}",                     "after `--deploy-hook` of `certbot`"),
    ("split --filter='cat {{state.v}}' f",                          "after `--filter` of `split`"),
    ("tar -xf a.tar --to-command={{state.v}}",                      "after `--to-command` of `tar`"),
    ("tar -I {{state.v}} -xf a",                                    "after `-I` of `tar`"),
    ("git -c alias.x='!{{state.v}}' x",                             "after `-c` of `git`"),
    ("git submodule foreach {{state.v}}",                           "after `foreach` of `git`"),
    ("tar --to-com={{state.v}} -xf a.tar",                          "after `--to-com` of `tar`"),
    ("apt-get -o Dpkg::Pre-Invoke::={{state.v}} install x",         "after `-o` of `apt-get`"),
    ("helm upgrade x y --post-renderer {{state.v}}",                "after `--post-renderer` of `helm`"),
    ("npm exec --call={{state.v}}",                                 "after `--call` of `npm`"),
    ("npm exec -- {{state.v}}",                                     "after `exec` of `npm`"),
    ("deno eval {{state.v}}",                                       "after `eval` of `deno`"),
    ("deno run -A {{state.v}}",                                     "after `run` of `deno`"),
    ("go run {{state.v}}",                                          "after `run` of `go`"),
    ("aws ssm send-command --parameters commands={{state.v}}",      "after `send-command` of `aws`"),
    ("heroku run {{state.v}}",                                      "after `run` of `heroku`"),
    ("python3 -m timeit {{state.v}}",                               "`python`, which evaluates"),
    ("docker run --entrypoint sh alpine -c {{state.v}}",            "`sh`, which evaluates"),
    ("docker run --entrypoint=/bin/sh alpine -c {{state.v}}",       "`sh`, which evaluates"),
    ("echo {{state.v}} | docker run -i --entrypoint sh alpine",     "`sh` must not follow a pipe"),
    ("nc -e {{state.v}} host 1",                                    "after `-e` of `nc`"),
    # programs
    ("psql -c \"select '{{state.v}}'\"",                            "`psql`, which evaluates"),
    ("mysql -e {{state.v}}",                                        "`mysql`, which evaluates"),
    ("ansible all -a {{state.v}}",                                  "`ansible`, which evaluates"),
    ("busybox awk '/{{state.v}}/' f",                               "`awk`, which evaluates"),
    ("busybox sh -c {{state.v}}",                                   "`sh`, which evaluates"),
    ("docker exec app awk '/{{state.v}}/' f",                       "`awk`, which evaluates"),
    ("npx {{state.v}}",                                             "where a command's name belongs"),
    ("npx -c {{state.v}}",                                          "after an option of `npx`"),
    ("systemd-run sh -c {{state.v}}",                               "`sh`, which evaluates"),
    ('printf -vX %s {{state.v}}; eval "$X"',                        "variable of `printf`"),
]  # fmt: skip


@rule("RS-65", "RS-16")
@case("X1")
@pytest.mark.parametrize("text, because", REFUSED)
def test_value_that_another_program_would_run_is_refused(text: str, because: str) -> None:
    with pytest.raises(BadInput) as refusal:
        compiled(text)
    assert because in refusal.value.message


@rule("RS-65")
@pytest.mark.parametrize(
    "text", ["ssh host deploy {{state.v}}", "make deploy V={{state.v}}", "echo {{state.v}} > a && . ./a"]
)
def test_refusal_names_a_way_that_works(text: str) -> None:
    with pytest.raises(BadInput, match="put the command into a script and pass the value as its argument"):
        compiled(text)
    compiled("./deploy.sh {{state.v}}")


ACCEPTED = [
    "docker exec -it {{state.container}} ls",
    "kubectl logs -c {{state.container}} pod",
    "npm exec prettier -- {{state.file}}",
    "go run . {{state.x}}",
    "deno run --allow-net={{state.host}} tool.ts {{state.x}}",
    "python3 -m http.server {{state.port}}",
    'while read -r line; do echo "$line"; done < {{state.file}}',
    "echo {{state.v}} && make deploy",
    'V={{state.v}}; echo "$V" > out.txt; ls *.txt',
    "./deploy -c {{state.v}}",
    "./deploy node {{state.v}}",
    "kubectl logs -c {{state.c}} pod",
    "docker ps --filter name={{state.c}}",
    "docker exec app python tool.py {{state.c}}",
    "echo {{state.v}} | docker exec -i app python tool.py",
    "bash deploy.sh {{state.v}} > out.log 2>&1",
    'bash deploy.sh {{state.x}} > "$LOG"',
    "./build > build.log; . ./env.sh; ./deploy {{state.x}}",
    "grep -q {{state.x}} deploy.sh && sh deploy.sh",
    "flock -n /tmp/l ./deploy {{state.v}}",
    "systemd-run --user --unit deploy ./deploy {{state.v}}",
    "git -c user.name=x commit -m {{state.v}}",
    "echo V={{state.v}} > .env && docker compose --env-file .env up -d",
    'echo {{state.x}} > list; while read -r l; do echo "$l"; done < list',
    "busybox wget {{state.x}}",
    "ping -c {{state.n}} {{state.host}}; head -c {{state.n}} f; nc -zv {{state.host}} 80",
    "echo {{state.x}} | grep node",
]


@rule("RS-65")
@pytest.mark.parametrize("text", ACCEPTED)
def test_value_that_stays_data_is_accepted_without_a_warning(text: str) -> None:
    assert compiled(text).unknown_programs == ()


@rule("RS-65")
def test_program_that_is_not_known_to_take_data_is_named() -> None:
    command = compiled("frob {{state.x}}; frob {{state.y}} | /usr/bin/grind; npx cowsay {{state.x}}; hum")
    assert command.unknown_programs == ("frob", "grind", "cowsay")
