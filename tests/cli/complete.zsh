# usage: zsh -f complete.zsh DIR LINE: what zsh offers for LINE when Tab is pressed, one per line. DIR has _faultline.
zmodload zsh/zpty
zpty shell zsh -f -i
# What compadd is given is what would be offered. It is printed instead, and the shell ends.
zpty -w shell "PS1= PS2= fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u
compadd() { local -a hits; builtin compadd -O hits \"\$@\"; (( ! \$#hits )) || print -rl -- @@\${^hits}; builtin compadd \"\$@\" }
finish() { zle complete-word; print; print -- '@'end; exit }
zle -N finish; bindkey '^I' finish; print '@'begin"
zpty -r -m shell ignored '*@begin*'
zpty -n -w shell "$2"$'\t'
local answer
zpty -r -m shell answer '*@end*'
print -r -- "$answer" | tr -d '\r' | sed -n 's/^.*@@//p' | sort -u
