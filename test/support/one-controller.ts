import { cpSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import ts from 'typescript'
import { checkout } from './programs.js'

/** The files of a directory of a checkout that are TypeScript, from its root. */
export const sourcesIn = (root: string, directory: string): string[] =>
  readdirSync(join(root, directory), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts'))
    .map(name => posix.join(directory, name))

/** The files of a checkout that one of its files imports, as types or at run time, from its root. */
export const importsIn = (root: string, file: string): string[] =>
  ts
    .preProcessFile(readFileSync(join(root, file), 'utf8'), true, true)
    .importedFiles.map(({ fileName }) => fileName)
    .filter(name => name.startsWith('.'))
    .map(name => posix.join(dirname(file), name).replace(/\.js$/, '.ts'))

/**
 * Copies these parts of the project to `directory`, and deletes there the wing for several controllers with
 * its line in the composition root. Returns that line.
 */
export function copyForOneController(directory: string, parts: readonly string[]): string {
  for (const part of parts) cpSync(join(checkout, part), join(directory, part), { recursive: true })
  symlinkSync(join(checkout, 'node_modules'), join(directory, 'node_modules'))
  rmSync(join(directory, 'lib', 'peers'), { recursive: true })
  const root = join(directory, 'lib', 'daemon.ts')
  const lines = readFileSync(root, 'utf8').split('\n')
  const isOfWing = (line: string) => /import\('\.\/peers\//.test(line)
  writeFileSync(root, lines.filter(line => !isOfWing(line)).join('\n'))
  return lines.filter(isOfWing).join('\n')
}
