import ini from 'ini'
import { table, usersDoc } from './keys.js'

/**
 * Returns the shipped ini: every key with comment and default. `settings` (`section.key` → value) replace
 * defaults: the installed file has absolute paths (rules 7.1, 7.4).
 */
export function iniText(settings: Readonly<Record<string, string>> = {}): string {
  const lines = [
    '# svcd: cluster provisioning and configuration service. ' +
      '`svcd check` checks this file; a restart reads it.',
    "# A relative path is relative to this file's directory. " +
      'Durations and sizes have a unit: 30s, 10m, 4h, 7d; 64k,',
    '# 1m, 2g. A comment has a line of its own; a value with ; or # stands in double quotes.'
  ]
  for (const [section, keys] of Object.entries(table)) {
    lines.push('', `[${section}]`)
    for (const [name, key] of Object.entries(keys)) {
      const value = settings[`${section}.${name}`] ?? key.default
      lines.push(`# ${key.doc}`, `${name} = ${value === '' ? '' : ini.safe(value)}`.trimEnd())
    }
    if (section === 'auth') lines.push('', '[users]', ...usersDoc.map(line => `# ${line}`))
  }
  return `${lines.join('\n')}\n`
}
