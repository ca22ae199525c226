// Asks the npm registry for known faults of the production packages. Exit 1: there is one. A registry that does
// not answer is told, and is no failure: it says nothing about the packages.
import { spawnSync } from 'node:child_process'

const { stdout, error } = spawnSync('npm', ['audit', '--omit=dev', '--json'], {
  encoding: 'utf8',
  timeout: 120_000,
  maxBuffer: 64 * 1024 * 1024
})
const report = (() => {
  try {
    return JSON.parse(stdout)
  } catch {
    return {}
  }
})()
const { vulnerabilities } = report
if (error || typeof vulnerabilities !== 'object' || vulnerabilities === null) {
  const why = error?.message ?? report.message ?? 'no report'
  console.log(`npm audit: not known, the registry does not answer: ${String(why).slice(0, 200)}`)
} else {
  const found = Object.values(vulnerabilities)
  for (const { name, severity, range } of found) console.log(`npm audit: ${name} ${range}: ${severity}`)
  if (found.length > 0) process.exitCode = 1
  else console.log('npm audit: no known fault in the production packages')
}
