/** What the boot sector prints on the first serial port. */
export const bootSectorText = 'booted from the local disk'
/** qemu's exit status after the boot sector has written 0x10 to its debug exit port. */
export const bootSectorExit = (0x10 << 1) | 1

/**
 * A boot sector (512 bytes, loaded at 0x7c00) that prints `bootSectorText` on COM1 and leaves the machine
 * through qemu's isa-debug-exit device at port 0xf4.
 */
export function bootSector(): Buffer {
  const sector = Buffer.alloc(512)
  const code = Buffer.from([
    ...[0x31, 0xc0], // xor ax, ax
    ...[0x8e, 0xd8], // mov ds, ax
    0xfc, // cld
    ...[0xbe, 0x00, 0x7d], // mov si, 0x7d00: the text
    0xac, // lodsb
    ...[0x84, 0xc0], // test al, al
    ...[0x74, 0x12], // jz +18: the end
    ...[0x88, 0xc4], // mov ah, al
    // The port may still be sending what the firmware wrote: a byte over that would be lost.
    ...[0xba, 0xfd, 0x03], // mov dx, 0x3fd: the line status of COM1
    0xec, // in al, dx
    ...[0xa8, 0x20], // test al, 0x20: it takes a byte
    ...[0x74, 0xfb], // jz -5: in al, dx
    ...[0x88, 0xe0], // mov al, ah
    ...[0xba, 0xf8, 0x03], // mov dx, 0x3f8: COM1
    0xee, // out dx, al
    ...[0xeb, 0xe9], // jmp -23: lodsb
    ...[0xba, 0xf4, 0x00], // mov dx, 0xf4
    ...[0xb0, 0x10], // mov al, 0x10
    0xee, // out dx, al
    0xf4 // hlt
  ])
  code.copy(sector)
  sector.write(`${bootSectorText}\r\n\0`, 0x100, 'latin1')
  sector.writeUInt16LE(0xaa55, 510)
  return sector
}
