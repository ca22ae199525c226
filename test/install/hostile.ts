/** Text that breaks out of careless quoting, in as many ways as a shell, a heredoc or jinja offers. */
export const hostile = [
  `it's "quoted" $(touch /pwned) \`touch /pwned\` \${HOME} $HOME \\`,
  '\nEOF\nSVC_END_OF_FUNCTIONS\ntouch /pwned\n%end\n; touch /pwned; #',
  '-rf --version -',
  "'; touch /pwned; '",
  '\r\u2028%end\u0085é€😀{{ 7 * 7 }}{% raw %}{# x #}',
  '* ? [a-z] ~ ! & | < > ( )'
].join('')
