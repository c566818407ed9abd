# Sourced. bare_debian RELEASE FOLDER installs that release of Debian in FOLDER, with this machine's package sources.
# Needs root. If debootstrap fails (no mirror in reach?), returns a code other than 0 and writes the reason to ./err.
bare_debian() {
  local mirror
  mirror=$(sed -n -e 's/^deb \(\[[^]]*\] \)\?\(http[^ ]*\) .*/\2/p' -e 's/^URIs: *\(http[^ ]*\).*/\2/p' /etc/apt/sources.list \
    /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
  debootstrap --variant=minbase "$1" "$2" ${mirror:+"$mirror"} >out 2>err || { tail -n 3 out err; return 1; }
  cp /etc/resolv.conf "$2/etc/" 2>/dev/null
  cp -r /etc/apt/apt.conf.d "$2/etc/apt/" 2>/dev/null
  [ -f /etc/apt/sources.list ] && cp /etc/apt/sources.list "$2/etc/apt/"
  cp -r /etc/apt/sources.list.d /etc/apt/auth.conf.d "$2/etc/apt/" 2>/dev/null
  cp -r /usr/share/keyrings/. "$2/usr/share/keyrings/" 2>/dev/null
  cp -r /etc/apt/trusted.gpg.d/. "$2/etc/apt/trusted.gpg.d/" 2>/dev/null
  return 0
}

# bare_ubuntu RELEASE FOLDER: likewise for Ubuntu, from its mirror. Needs its keyring (Debian's package
# ubuntu-keyring).
bare_ubuntu() {
  local keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  [ -f $keyring ] || { echo "$keyring is not here" >err; return 1; }
  # "gutsy": the script for all releases since 2007. An old debootstrap does not know the names of newer releases.
  debootstrap --variant=minbase --keyring=$keyring --components=main,universe "$1" "$2" "" gutsy >out 2>err ||
    { tail -n 3 out >>err; return 1; }
  cp /etc/resolv.conf "$2/etc/" 2>/dev/null
  cp -r /etc/apt/apt.conf.d "$2/etc/apt/" 2>/dev/null
  return 0
}
