// Half of the daemon's files. Node opens all files of one import at once, and the limit of open files may be low: who
// imports this before the rest needs fewer at once.
import '../services/services.js'
